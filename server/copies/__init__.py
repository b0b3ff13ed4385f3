"""Copies of logs: the commands that back up, restore and copy them.  The daemon does nothing for these."""
