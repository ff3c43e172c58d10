"""What ``profile`` does: a process that launches one variant, the tools that watch it, and the meaning of their figures."""
