"""Settings of the daemon, and what each token permits."""
