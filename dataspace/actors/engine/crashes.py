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
    """The class and the text of an error, as text that can be written anywhere.

    >>> described(ValueError("no"))
    'ValueError: no'
    """
    name = _class_name(error)
    try:
        told = f"{name}: {error}"
    except BaseException as second:  # noqa: BLE001  # a fence around the text, which is the actor's code as well
        told = f"{name}, whose text raises {_class_name(second)}"
    return told.encode("utf-8", "backslashreplace").decode()


def _class_name(error: BaseException) -> str:
    """The name of its class, whatever its metaclass says."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def is_within(error: BaseException, fence: tuple[type[BaseException], ...]) -> bool:
    """Whether an error, or all in a group of them, is what ends an actor and nothing else."""
    return all(isinstance(leaf, fence) for leaf in leaves(error))


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group, and in the groups in it; of what is no group, itself."""
    found, groups = [], [error]
    while groups:
        each = groups.pop()
        if isinstance(each, BaseExceptionGroup):
            groups += reversed(BaseExceptionGroup.exceptions.__get__(each))  # whatever its class makes of it
        else:
            found.append(each)
    return found
