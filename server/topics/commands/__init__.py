"""The commands about topics."""
