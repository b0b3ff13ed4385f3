"""Transport: from an address to a connected, perhaps encrypted socket, and the proof of who connects."""
