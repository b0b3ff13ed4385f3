"""Publication: many staged operations become one turn."""
