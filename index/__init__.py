"""The index: who is interested in what, and what has changed."""
