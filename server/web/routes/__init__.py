"""Routes: what a daemon answers to plain HTTP requests."""
