"""HTTP and WebSocket: another door to the daemon, for browsers and whatever makes requests."""
