"""Frozen kernels built from their sealed sources alone, kept by content, and loaded."""
