"""Queries: the body of a rule, evaluated once at the client over the facts of one epoch."""
