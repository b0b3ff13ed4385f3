"""Crashes: what code of an actor raised, as something that can be told to anybody.

It is apart because words are made of what strangers wrote, in the middle of what must not fail.

Always: making a crash raises nothing, whatever was raised.
"""

from __future__ import annotations

from dataspace.errors import ActorCrashed


def crash_of(where: str, error: BaseException) -> ActorCrashed:
    """The crash that an error is, which it has as its cause."""
    crash = ActorCrashed(f"{where}: {described(error)}")
    crash.__cause__ = error
    return crash


def described(error: BaseException) -> str:
    """The class and the text of an error.

    >>> described(ValueError("no"))
    'ValueError: no'
    """
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as second:  # noqa: BLE001  # a fence around the text, which is the actor's code as well
        return f"{name}, whose text raises {type(second).__name__}"


def is_within(error: BaseException, fence: tuple[type[BaseException], ...]) -> bool:
    """Whether an error, or all in a group of them, is what ends an actor and nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(fence)[1] is None
    return isinstance(error, fence)
