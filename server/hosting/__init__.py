"""Hosting: user code that runs in or beside the daemon."""
