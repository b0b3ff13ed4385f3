"""Owners of facts beyond one connection: turn numbers, leases, deadlines, publishers."""
