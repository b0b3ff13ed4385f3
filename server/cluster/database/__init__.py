"""The home of daemons in a database: membership, terms, leases."""
