"""Conditions: turns that happen only if their expectations hold."""
