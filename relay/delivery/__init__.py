"""Delivery: what waits for one observer or one connection, within its bounds."""
