"""Owners of facts beyond one connection: turn numbers, leases, accounts."""
