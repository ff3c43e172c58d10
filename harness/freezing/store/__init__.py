"""The set on the disk: reading it with all that is wrong, its history, and changes that happen whole or not at all."""
