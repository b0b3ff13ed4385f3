"""SQLite's own file operations, seen and broken: in the very library that Python's ``sqlite3`` uses.

In the default VFS it replaces the function that opens a file by one that opens it as before, and from then on
asks a *hook* before each ``xWrite``, ``xTruncate``, ``xSync`` and ``xDelete``.  The hook gets an event and
answers 0, or the code of SQLite with which the operation is to fail without having happened.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
from collections.abc import Callable
from typing import Any

Event = tuple[Any, ...]
"""``("write", file, offset, bytes)``, ``("truncate", file, size)``, ``("sync", file)`` or
``("delete", file)``."""

Hook = Callable[[Event], int]

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


def hook_sqlite(hook: Hook, *, names: Callable[[str], str] = os.path.basename, reads: bool = False) -> None:
    """From now on, the hook is asked before SQLite writes, truncates, syncs or deletes, and ``reads``.

    ``names`` makes the name of a file in an event of its path.
    """
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    really_open, really_delete = _OPEN(vfs.xOpen), _DELETE(vfs.xDelete)
    tables: dict[int, _Methods] = {}

    def opened(of: int, name: int | None, file: int, flags: int, out: int) -> int:
        code: int = really_open(of, name, file, flags, out)
        slot = ctypes.cast(file, ctypes.POINTER(_P))
        if code == 0 and name and slot[0]:
            _NAMES[file] = names(_path(name))
            original = slot[0]
            if original not in tables:
                methods = ctypes.cast(original, ctypes.POINTER(_Methods)).contents
                tables[original] = _hooked(methods, hook, reads=reads)
            slot[0] = ctypes.addressof(tables[original])
        return code

    def deleted(of: int, name: int, sync: int) -> int:
        return hook(("delete", names(_path(name)))) or int(really_delete(of, name, sync))

    open_now, delete_now = _OPEN(opened), _DELETE(deleted)
    _KEPT.extend([open_now, delete_now, tables])
    vfs.xOpen, vfs.xDelete = (ctypes.cast(each, _P).value for each in (open_now, delete_now))


def _path(pointer: int) -> str:
    return ctypes.string_at(pointer).decode()


def _hooked(original: _Methods, hook: Hook, *, reads: bool) -> _Methods:
    """A table of methods that ask the hook and go on to the original ones."""
    made = _Methods.from_buffer_copy(original)
    really_write, really_sync = _WRITE(original.xWrite), _SYNC(original.xSync)
    really_truncate, really_read = _TRUNCATE(original.xTruncate), _WRITE(original.xRead)

    def write(file: int, data: int, size: int, offset: int) -> int:
        told = ("write", _NAMES[file], offset, ctypes.string_at(data, size))
        return hook(told) or int(really_write(file, data, size, offset))

    def truncate(file: int, size: int) -> int:
        return hook(("truncate", _NAMES[file], size)) or int(really_truncate(file, size))

    def sync(file: int, flags: int) -> int:
        return hook(("sync", _NAMES[file])) or int(really_sync(file, flags))

    def read(file: int, data: int, size: int, offset: int) -> int:
        return hook(("read", _NAMES[file])) or int(really_read(file, data, size, offset))

    if reads:
        _KEPT.append(reading := _WRITE(read))
        made.xRead = ctypes.cast(reading, _P).value
    callbacks = _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)
    _KEPT.extend([made, *callbacks])
    made.xWrite, made.xTruncate, made.xSync = (ctypes.cast(each, _P).value for each in callbacks)
    return made
