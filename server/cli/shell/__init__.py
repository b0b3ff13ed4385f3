"""The command ``dataspace shell``: a prompt on one connection."""
