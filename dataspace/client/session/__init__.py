"""One client session over one connection after another."""
