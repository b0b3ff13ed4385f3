"""The groups of a space: streams of work that are divided among members."""
