"""The groups of one space: streams of work that are divided among members."""
