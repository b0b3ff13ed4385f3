"""The options of commands that have a file of their own for them; apart from what the commands load."""
