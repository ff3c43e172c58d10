"""A loose kernel, in a file outside of ``ops/``: described in Python, and written as the folder of an op."""
