"""The home of daemons in one directory: its lock, and who follows."""
