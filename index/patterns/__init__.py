"""Patterns: their checks on a value, their notation, and the functions generated from them."""
