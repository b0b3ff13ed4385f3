"""A cluster: daemons that share one store, led by one daemon."""
