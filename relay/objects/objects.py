"""The port of a store of objects: named byte strings in folders, each written whole.

A backup in blocks and an archive need little of a store: no file grows and none is renamed.  An archive needs
one thing more, that an object is created only if there is none of its name: with that alone two writers never
both write version 42.

Always: an error is a ``StoreFailed`` with the place in it, without a password; an object that ``get`` returns
was written whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from dataspace.errors import DataspaceError

PROBE: Final = "probe"
"""An object that is written to find out what is allowed."""


def without_password(url: str) -> str:
    """Returns a URL as it may be shown.

    >>> without_password("s3://key:secret@bucket/prefix")
    's3://…@bucket/prefix'
    """
    return re.sub(r"//[^/@]*:[^/@]*@", "//…@", url)


class StoreFailed(DataspaceError):
    """The store refused or did not answer; the message has the backend's words."""


class NoSuchObject(StoreFailed):
    """There is no object of this name."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it: its bytes, and when it was written, in seconds by its clock."""

    size: int
    written: float


class Objects(Protocol):
    """The objects under one place.  Names are relative to it, with ``/`` between folders; all calls block."""

    shown: str
    """The place, for messages."""

    def listed(self, folder: str = "") -> dict[str, Listed]:
        """Returns the objects of one folder by their names in it; none where there is no such folder."""

    def folders(self, folder: str = "") -> list[str]:
        """Returns the names of the folders in a folder."""

    def get(self, name: str) -> bytes:
        """Returns the content of an object; ``NoSuchObject`` where there is none."""

    def get_part(self, name: str, start: int, end: int) -> bytes:
        """Returns some bytes of an object, from ``start`` to before ``end``."""

    def put(self, name: str, content: bytes) -> None:
        """Writes an object, on disk when it returns; an interrupted call may leave a shorter object."""

    def create(self, name: str, content: bytes) -> bool:
        """Writes an object unless there is one of this name; True if it did.

        After ``StoreFailed`` it may be there or not.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects; an object that is gone already is no error."""

    def address(self, name: str) -> str:
        """Returns the path or URL by which other programs read an object."""
