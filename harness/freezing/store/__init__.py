"""The set on disk: reading it with all its faults, its history, and changes that are made completely or not at all."""
