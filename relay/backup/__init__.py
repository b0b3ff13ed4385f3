"""Backup and restore: a data directory copied while a daemon writes it, and put back to an earlier moment.

It is apart from the log and the journal because it reads both from another process, and writes neither of the
daemon's files.  ``blocks.py`` copies what it makes to a store.  What an operator does with it is in
``server/SERVE.md``.
"""
