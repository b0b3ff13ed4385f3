"""What waits: runs the pure engines of actors and flows on trio, near a space or far from it."""
