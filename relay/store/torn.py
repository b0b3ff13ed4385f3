"""Torn writes: what a crash left behind the last whole transaction of SQLite's write-ahead log.

SQLite skips a torn frame silently when it opens the file, since nothing in it was acknowledged.  It is looked
for beforehand, so that it can be logged.  The form is described in
<https://sqlite.org/fileformat2.html#walformat>.

Always: nothing is changed; an acknowledged write is never torn (the acknowledged mark shows if one is
missing).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_FILE: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682
_WORD: Final = 0xFFFFFFFF


class _Frame(NamedTuple):
    """The head of a frame: ``pages`` is not 0 where a transaction ends with it."""

    page: int
    pages: int
    salt: int
    more_salt: int
    first: int
    second: int


def torn(log: Path) -> int:
    """Returns the bytes behind the last whole transaction of a write-ahead log.  O(file).

    Frames of an earlier round through the file do not count.
    """
    try:
        with log.open("rb") as file:
            return _torn(file, log.stat().st_size)
    except FileNotFoundError:
        return 0


def _torn(file: BinaryIO, size: int) -> int:
    head = file.read(_FILE.size)
    if len(head) < _FILE.size:
        return 0
    magic, _, page, _, *salts, first, second = _FILE.unpack(head)
    if magic & ~1 != _MAGIC:
        return 0
    ends, seals = [_FILE.size], [(first, second)]  # of transactions, the beginning of the file included
    at = _FILE.size
    while at + _FRAME.size <= size:
        file.seek(at)
        frame = _Frame(*_FRAME.unpack(file.read(_FRAME.size)))
        if [frame.salt, frame.more_salt] != salts:
            break  # of an earlier round
        at += _FRAME.size + page
        if frame.pages:
            ends.append(at)
            seals.append((frame.first, frame.second))
    if len(ends) > 1 and not _is_sealed(
        file, range(ends[-2], ends[-1], _FRAME.size + page), page, magic, seals[-2]
    ):
        ends.pop()
    return max(0, min(at, size) - ends[-1])


def _is_sealed(file: BinaryIO, frames: range, page: int, magic: int, seal: tuple[int, int]) -> bool:
    """True if these frames have their stated checksums, after a frame that ends with ``seal``."""
    order = ">" if magic & 1 else "<"
    for at in frames:
        file.seek(at)
        head, body = file.read(_FRAME.size), file.read(page)
        if len(body) < page:
            return False
        seal = _sum(head[:8] + body, order, *seal)
        if seal != _FRAME.unpack(head)[4:]:
            return False
    return True


def _sum(body: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(body) // 4}I", body)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
