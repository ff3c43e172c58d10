"""A loose kernel, which lies in a file and in no folder of ``ops/``: described in Python, and written out as an op like any other."""
