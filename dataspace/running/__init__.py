"""Runs the pure engines of actors and flows on trio, beside a space or as a client of it."""
