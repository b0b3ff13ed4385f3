"""Conditions: turns that happen only if what they expect holds."""
