"""Examples of streaming queries over a dataspace: ``python -m dataspace.spark examples.NAME``."""
