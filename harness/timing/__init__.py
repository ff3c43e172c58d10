"""How long does it take? Samples, the clock, and their statistics."""
