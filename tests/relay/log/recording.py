"""A program that writes a log and records what it asks of the disk: writes, truncations and syncs, in order.

It looks over SQLite's shoulder: in the default VFS of the very library that Python's ``sqlite3`` uses, it
replaces the function that opens a file by one that opens it as before and then notes each ``xWrite``,
``xTruncate``, ``xSync`` and ``xDelete``; and it notes ``os.pwrite`` and ``os.fsync`` of the acknowledged
mark.  Acceptances are noted among them.  Whoever reads the record can say what a disk holds that lost, at any
instant, all that was not synced.

``recording.py DIRECTORY RECORD EPOCHS SEED``
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import pickle
import sys
from pathlib import Path
from random import Random
from typing import Any

import trio

from index.values import Value
from relay.log import Log
from relay.log.commits import GroupCommit
from tests.relay.log.crashing import content

Event = tuple[Any, ...]
"""``("write", file, offset, bytes)``, ``("truncate", file, size)``, ``("sync", file)``, ``("delete", file)``,
``("accepted", epoch)``."""

_EVENTS: list[Event] = []
_P, _I, _Q = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64

_WRITE = ctypes.CFUNCTYPE(_I, _P, _P, _I, _Q)
_TRUNCATE = ctypes.CFUNCTYPE(_I, _P, _Q)
_SYNC = ctypes.CFUNCTYPE(_I, _P, _I)
_OPEN = ctypes.CFUNCTYPE(_I, _P, _P, _P, _I, _P)  # a name is a pointer: there is more behind it
_DELETE = ctypes.CFUNCTYPE(_I, _P, _P, _I)


class _Vfs(ctypes.Structure):
    """``sqlite3_vfs``, as far as it is needed."""

    _fields_ = [  # type: ignore[mutable-override]  # that is how a structure is declared
        ("iVersion", _I),
        ("szOsFile", _I),
        ("mxPathname", _I),
        ("pNext", _P),
        ("zName", ctypes.c_char_p),
        ("pAppData", _P),
        ("xOpen", _P),
        ("xDelete", _P),
    ]


class _Methods(ctypes.Structure):
    """``sqlite3_io_methods`` of version 3."""

    _fields_ = [  # type: ignore[mutable-override]  # that is how a structure is declared
        ("iVersion", _I),
        ("xClose", _P),
        ("xRead", _P),
        ("xWrite", _P),
        ("xTruncate", _P),
        ("xSync", _P),
        ("rest", _P * 13),
    ]


_KEPT: list[object] = []  # callbacks and tables that SQLite points to
_NAMES: dict[int, str] = {}


def watch_sqlite() -> None:
    """From now on, what SQLite writes and syncs is noted."""
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    really_open, really_delete = _OPEN(vfs.xOpen), _DELETE(vfs.xDelete)
    tables: dict[int, _Methods] = {}

    def opened(of: int, name: int | None, file: int, flags: int, out: int) -> int:
        code: int = really_open(of, name, file, flags, out)
        slot = ctypes.cast(file, ctypes.POINTER(_P))
        if code == 0 and name and slot[0]:
            _NAMES[file] = _name(name)
            original = slot[0]
            if original not in tables:
                tables[original] = _watched(ctypes.cast(original, ctypes.POINTER(_Methods)).contents)
            slot[0] = ctypes.addressof(tables[original])
        return code

    def deleted(of: int, name: int, sync: int) -> int:
        _EVENTS.append(("delete", _name(name)))
        return int(really_delete(of, name, sync))

    open_now, delete_now = _OPEN(opened), _DELETE(deleted)
    _KEPT.extend([open_now, delete_now, tables])
    vfs.xOpen, vfs.xDelete = (ctypes.cast(each, _P).value for each in (open_now, delete_now))


def _name(pointer: int) -> str:
    return os.path.basename(ctypes.string_at(pointer).decode())


def _watched(original: _Methods) -> _Methods:
    """A table of methods that note and go on to the original ones."""
    made = _Methods.from_buffer_copy(original)
    really_write, really_sync = _WRITE(original.xWrite), _SYNC(original.xSync)
    really_truncate = _TRUNCATE(original.xTruncate)

    def write(file: int, data: int, size: int, offset: int) -> int:
        _EVENTS.append(("write", _NAMES[file], offset, ctypes.string_at(data, size)))
        return int(really_write(file, data, size, offset))

    def truncate(file: int, size: int) -> int:
        _EVENTS.append(("truncate", _NAMES[file], size))
        return int(really_truncate(file, size))

    def sync(file: int, flags: int) -> int:
        code: int = really_sync(file, flags)
        _EVENTS.append(("sync", _NAMES[file]))
        return code

    callbacks = _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)
    _KEPT.extend([made, *callbacks])
    made.xWrite, made.xTruncate, made.xSync = (ctypes.cast(each, _P).value for each in callbacks)
    return made


def watch_the_mark() -> None:
    """The same for the file that is written by ourselves."""
    really_write, really_sync = os.pwrite, os.fsync

    def name(descriptor: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        _EVENTS.append(("write", name(descriptor), offset, bytes(data)))
        return really_write(descriptor, data, offset)

    def fsync(descriptor: int) -> None:
        really_sync(descriptor)
        _EVENTS.append(("sync", name(descriptor)))

    os.pwrite, os.fsync = pwrite, fsync  # type: ignore[assignment]  # the same for what we call them with


async def write(directory: Path, epochs: int, seed: int) -> None:
    """Some epochs in groups of any size, with snapshots on the way."""
    random, log = Random(seed), Log.open(directory)
    owners: dict[str, dict[int, Value]] = {"durable:writer": {}}
    commits = GroupCommit(log, state=lambda: owners, snapshot_changes=300)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commits.run)
        for number in range(1, epochs + 1):
            epoch, _ = content(number)
            owners["durable:writer"].update(epoch.claims[0].asserted)
            commits.submit(epoch, lambda done: _EVENTS.append(("accepted", done.number)))
            if random.random() < 0.3:
                await commits.wait_durable(number)
        await commits.wait_durable(epochs)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    watch_sqlite()
    watch_the_mark()
    trio.run(write, Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))
    Path(sys.argv[2]).write_bytes(pickle.dumps(_EVENTS))
    os._exit(0)  # without the orderly end of anything
