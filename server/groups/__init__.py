"""What members of groups send and receive: streams of deliveries, and requests about groups."""
