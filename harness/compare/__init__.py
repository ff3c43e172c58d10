"""Is it faster? Contests in one process, verdicts, and an op's goals against its peers."""
