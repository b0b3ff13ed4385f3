"""The daemon: puts all rooms together and runs until it is stopped."""
