"""Throughs: the middle of a pipe."""
