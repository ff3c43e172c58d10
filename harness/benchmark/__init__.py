"""Building, verifying, and counting or timing the variants of one op: a session records it, the screen shows it."""
