"""Deployment: turns the frozen set into a static library with a C dispatcher. At build time it needs only Python's standard library."""
