"""The documentation site: its own pages, and what puts them together with those beside the code."""
