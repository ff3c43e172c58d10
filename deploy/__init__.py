"""Deployment: the frozen set becomes a static library with a C dispatcher. Needs Python's standard library alone, at build time."""
