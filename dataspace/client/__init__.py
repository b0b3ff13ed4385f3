"""The client: the verbs of a remote space, asynchronous and blocking."""
