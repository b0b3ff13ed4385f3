"""Errors that say who is at fault, as far as the index knows anybody.

The class answers the first question of a reader of a traceback: ``UsageError`` means that this
program broke a rule of the method it called, ``InternalError`` that the project did and should hear
of it.  Errors about peers and connections are added one layer up, in ``dataspace.errors``.
"""


class DataspaceError(Exception):
    """The common ancestor of every error that this project raises on purpose."""


class UsageError(DataspaceError, ValueError):
    """The calling program broke a rule; nothing was changed."""


class InternalError(DataspaceError):
    """An invariant of the project is broken: please report it with the traceback."""
