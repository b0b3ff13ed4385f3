"""Requests about what owners claim: leases, who claims what, and withdrawal."""
