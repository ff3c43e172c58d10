"""Building, verifying, and timing (or counting) the variants of one op: a session records it, the screen shows it."""
