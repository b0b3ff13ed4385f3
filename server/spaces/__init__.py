"""A space of the daemon: its facts, its log, its owners, and what runs in its turns."""
