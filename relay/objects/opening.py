"""Opening a store of objects, and finding out whether it creates an object only once."""

from __future__ import annotations

import uuid
from pathlib import Path

from relay.objects.directory import DirectoryObjects
from relay.objects.objects import PROBE, Objects, StoreFailed
from relay.objects.remote import RemoteObjects


def check_creation(objects: Objects) -> None:
    """Raises ``StoreFailed`` where nothing can be written, or a second creation of an object succeeds."""
    name = f"{PROBE}-{uuid.uuid4().hex}"
    content = b"written to find out whether that is allowed; may be deleted\n"
    try:
        objects.create(name, content)
        again = objects.create(name, content)
    finally:
        objects.delete([name])
    if again:
        raise StoreFailed(
            f"{objects.shown} creates an object that exists already, so two writers could write one version; "
            "give a store that honours `If-None-Match: *`, or a directory"
        )


def open_objects(place: str | Path) -> Objects:
    """Opens the store at a URL that fsspec knows, or in a directory, which need not be there yet.

    ``file://`` names a directory.  Raises ``UsageError`` where a package for the URL is missing.
    """
    text = str(place)
    if "://" in text and not text.startswith("file://"):
        return RemoteObjects(text)
    return DirectoryObjects(Path(text.removeprefix("file://")))
