"""The index: values, patterns over them, and who is interested in what."""
