"""What a person sees on the terminal: progress during work, and tables of any width."""
