"""Exception groups that hold one error, taken off again.

A nursery raises groups, even when the one thing that went wrong was the caller's own error inside our
``async with``.  Whoever calls us should catch what they raised, not the box it came in.
"""

from __future__ import annotations


def alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of one, however deeply boxed; else the group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
