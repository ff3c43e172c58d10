"""Libraries to measure against."""
