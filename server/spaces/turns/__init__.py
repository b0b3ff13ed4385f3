"""What a space keeps for turns with conditions, and for publications."""
