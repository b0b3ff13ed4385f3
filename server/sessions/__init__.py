"""Sessions: a peer, what all peers share, and how packets go to a peer."""
