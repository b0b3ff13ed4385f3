"""Sources: where streams begin."""
