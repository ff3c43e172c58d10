"""What a person sees on the terminal: progress while work goes on, and tables of any width."""
