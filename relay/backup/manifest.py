"""The manifest of a backup: its logs, and the epoch of each; ``backup.json`` in its directory.

It is written last, so a directory with one has been a whole backup once.  It also marks the directory as a
copy: a daemon does not start there, because the copy has the identity of its original.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dataspace.errors import UsageError
from relay.store.private import make_anew
from relay.store.sqlite.failures import translated
from relay.store.sqlite.storage import flush

NAME: Final = "backup.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class BackedUp:
    """One log: its space, identity, oldest and newest epoch, and the time of that in microseconds since 1970.

    ``read`` is when it was read, in microseconds; ``reserved`` the highest number that had been given out
    then.
    """

    space: str
    identity: str
    oldest: int
    epoch: int
    time: int
    reserved: int
    read: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The logs of a backup."""

    spaces: tuple[BackedUp, ...]

    def write(self, directory: Path) -> None:
        """Writes it in place of the one before, on disk when it returns."""
        path, new = directory / NAME, directory / f"{NAME}.new"
        latest = max([each.read for each in self.spaces], default=0)
        body = {
            "format": FORMAT,
            "made": datetime.fromtimestamp(latest / 1e6, UTC).isoformat(),
            "spaces": [asdict(each) for each in self.spaces],
        }
        with translated("write", path):
            make_anew(new)
            new.write_text(json.dumps(body, indent=2) + "\n")
            flush(new)
            os.replace(new, path)
        flush(directory)

    @staticmethod
    def read(directory: Path) -> Manifest:
        """Returns the manifest of a backup; ``UsageError`` if no manifest can be read there."""
        path = directory / NAME
        try:
            body = json.loads(path.read_text())
            if body["format"] != FORMAT:
                raise UsageError(f"{path} has format {body['format']!r:.20}, this program reads {FORMAT}")
            return Manifest(tuple([BackedUp(**each) for each in body["spaces"]]))
        except FileNotFoundError:
            raise UsageError(f"{directory} is no backup: there is no {NAME} in it") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} cannot be read: {error!r:.200}") from None


def is_backup(directory: Path) -> bool:
    """True if a directory is a backup."""
    return (directory / NAME).exists()
