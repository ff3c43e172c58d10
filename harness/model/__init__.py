"""How long would it take? Counts, the roofline, and the time model."""
