"""The frozen set: winners with their sources sealed, and the evidence why they were chosen. ``docs/frozen.md`` describes the format."""
