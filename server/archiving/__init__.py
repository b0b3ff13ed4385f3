"""Archiving the logs of a daemon: the commands, and the process that archives for it."""
