"""Worker processes and their jobs: a crash costs one job, never the command."""
