"""Streams that a peer has opened, and what feeds each."""
