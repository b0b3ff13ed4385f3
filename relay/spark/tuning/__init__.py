"""What leans on PySpark's internals, for speed; everything works without it."""
