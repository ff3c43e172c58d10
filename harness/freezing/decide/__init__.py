"""Which kernel takes a bucket: candidates timed against the incumbent, or by recorded times, and what is written of that."""
