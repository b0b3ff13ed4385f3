"""Patterns: what they ask of a value, how they are written, and the functions generated from them."""
