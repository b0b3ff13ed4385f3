"""What feeds a stream that a peer has opened."""
