"""The store: what the log of a space and the journal of topics share on disk."""
