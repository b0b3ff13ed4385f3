"""Sinks: where streams end."""
