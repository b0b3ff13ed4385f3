"""Connections: peers with a socket, from the listener to the goodbye."""
