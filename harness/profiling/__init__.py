"""What ``profile`` does: a process that launches one variant, the tools that look at it, and what their figures mean."""
