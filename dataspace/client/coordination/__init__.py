"""Coordination: locks, elections, one fact for each key, and waiting for a fact."""
