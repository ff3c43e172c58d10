"""Which kernel takes a bucket: candidates timed against the incumbent, or judged by recorded times, and what is written about it."""
