"""Relations: rows that hold, with the derivations that support them."""
