"""The daemon and its command line: the thin shell around spaces, the log and the wire."""
