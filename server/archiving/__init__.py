"""Archiving the logs of a daemon: the process that does it, and the daemon's view of that."""
