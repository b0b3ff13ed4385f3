"""A disk that loses what was not synced, in part or whole.

What a file had when it was last synced is there for sure; of what was written to it since, some writes are
there and some are not, and some are torn.  File names are taken to be there once made.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.relay.log.disk import Event


class Disk:
    """Files as they were last synced, and what has been written to them since."""

    def __init__(self) -> None:
        self.synced: dict[str, bytearray] = {}
        self.since: dict[str, list[Event]] = {}
        self.missing = self.torn = 0
        """Of what was not synced, when it stopped."""

    def take(self, event: Event) -> None:
        """One thing that was asked of it."""
        kind, name = event[0], event[1]
        if kind in ("write", "truncate"):
            self.synced.setdefault(name, bytearray())
            self.since.setdefault(name, []).append(event)
        elif kind == "sync":
            for each in self.since.pop(name, []):
                _apply(self.synced[name], each)
        elif kind == "delete":
            self.synced.pop(name, None)
            self.since.pop(name, None)

    def stop(self, place: Path, random: Random | None) -> None:
        """Leaves what is on it in a directory; ``random`` adds a part of what was not synced."""
        place.mkdir()
        for name, synced in self.synced.items():
            left = bytearray(synced)
            for event in self.since.get(name, []) if random else ():
                assert random is not None  # else there is nothing to go through
                if random.random() < 0.5:
                    after = _torn(event, random)
                    self.torn += after is not event
                    _apply(left, after)
                else:
                    self.missing += 1
            (place / name).parent.mkdir(exist_ok=True)  # that of another space
            (place / name).write_bytes(left)


def _apply(file: bytearray, event: Event) -> None:
    if event[0] == "truncate":
        del file[event[2] :]
        return
    offset, data = event[2], event[3]
    file.extend(bytes(max(0, offset + len(data) - len(file))))
    file[offset : offset + len(data)] = data


def _torn(event: Event, random: Random) -> Event:
    if event[0] == "write" and len(event[3]) > 512 and random.random() < 0.3:
        return (*event[:3], event[3][: random.randrange(1, len(event[3]) // 512 + 1) * 512])
    return event
