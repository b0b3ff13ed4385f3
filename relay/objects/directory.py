"""Objects in a directory: files that appear under their names whole, and on disk.

``link(2)`` gives a file its name only if no file has it; ``rename(2)`` would replace one silently.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relay.objects.objects import Listed, NoSuchObject, StoreFailed
from relay.store.private import DIRECTORY_MODE, FILE_MODE

UNNAMED: Final = ".part-"
"""What the name of a file begins with until it is whole."""

STALE_SECONDS: Final = 86_400.0
"""Age from which such a file is listed, so that it is deleted: the process that wrote it was killed."""


class DirectoryObjects:
    """The objects in a directory, which is made with the first one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self.shown = str(directory)

    def listed(self, folder: str = "") -> dict[str, Listed]:
        with self._translated("list", folder):
            found: dict[str, Listed] = {}
            for entry in _scanned(self._path(folder)):
                if entry.is_file():
                    state = entry.stat()
                    if not entry.name.startswith(UNNAMED) or state.st_mtime < time.time() - STALE_SECONDS:
                        found[entry.name] = Listed(state.st_size, state.st_mtime)
            return found

    def folders(self, folder: str = "") -> list[str]:
        with self._translated("list", folder):
            return sorted(each.name for each in _scanned(self._path(folder)) if each.is_dir())

    def get(self, name: str) -> bytes:
        with self._translated("read", name):
            return self._path(name).read_bytes()

    def get_part(self, name: str, start: int, end: int) -> bytes:
        with self._translated("read", name), self._path(name).open("rb") as file:
            return os.pread(file.fileno(), end - start, start)

    def put(self, name: str, content: bytes) -> None:
        with self._translated("write", name), self._written(name, content) as new:
            new.replace(self._path(name))

    def create(self, name: str, content: bytes) -> bool:
        with self._translated("write", name), self._written(name, content) as new:
            try:
                os.link(new, self._path(name))
            except FileExistsError:
                return False
            return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._translated("delete", name):
                self._path(name).unlink(missing_ok=True)

    def address(self, name: str) -> str:
        return str(self._path(name))

    def _path(self, name: str) -> Path:
        return self._directory / name if name else self._directory

    @contextmanager
    def _written(self, name: str, content: bytes) -> Iterator[Path]:
        """Writes a file without its name, which the block gives to it; on disk when it ends."""
        folder = self._path(name).parent
        self._make(folder)
        new = folder / f"{UNNAMED}{uuid.uuid4().hex}"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            yield new
        finally:
            new.unlink(missing_ok=True)
        _flush(folder)

    def _make(self, folder: Path) -> None:
        """Makes a folder and those above it, on disk."""
        if not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(DIRECTORY_MODE, exist_ok=True)
            _flush(folder.parent)

    @contextmanager
    def _translated(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NoSuchObject(f"there is no {self._path(name)}") from None
        except OSError as error:
            raise StoreFailed(f"cannot {verb} {self._path(name)}: {error.strerror}") from error


def _scanned(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _flush(folder: Path) -> None:
    """Brings the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
