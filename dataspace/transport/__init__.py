"""Transport: from an address to a connected, perhaps encrypted socket, and the credentials of a client."""
