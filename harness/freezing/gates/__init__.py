"""The gates on the way into the frozen set; each says pass, or why it refuses."""
