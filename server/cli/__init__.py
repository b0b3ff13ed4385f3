"""The command ``dataspace``: parse arguments, carry them out, print."""
