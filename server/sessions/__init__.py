"""Sessions: one peer, from its socket to its requests."""
