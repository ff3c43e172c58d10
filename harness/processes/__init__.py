"""Worker processes, and the jobs that they do: what one takes down with it is a job, never the command."""
