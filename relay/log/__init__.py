"""The log of a space: every epoch on disk, in order, and how to read it back (LOG.md).

It is apart from the rest of ``relay`` because a log can be opened, read and verified without a daemon, an
event loop or a socket.  The public names are in ``dataspace.log``.
"""
