"""The commands that last: on an event loop, until they are interrupted or have no more to do."""
