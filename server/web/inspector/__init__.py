"""The inspector: the page of a browser that shows a daemon, and what serves its files."""
