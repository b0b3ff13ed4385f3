"""Topics of the daemon: their catalogue, publishers and subscribers."""
