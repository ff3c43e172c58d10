"""What a kernel passes on its way into the frozen set; each gate says pass, or why it refuses."""
