"""Erasure of facts and messages from an archive."""
