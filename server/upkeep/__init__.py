"""What operators do to a daemon and its data: back up, restore, drain, supervise (SERVE.md)."""
