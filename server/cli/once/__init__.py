"""The short commands: each asks a daemon for one thing, or commits one turn, and ends; no event loop."""
