"""The session of one client: turns, streams and requests over one connection after another."""
