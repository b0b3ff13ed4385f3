"""Objects at a URL that fsspec knows: S3, Azure, Google Cloud, SFTP …

What a backend needs to know beyond the URL, such as credentials, it reads from where its users have it: the
variables of its tools, or fsspec's own configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from dataspace.errors import UsageError
from relay.objects.objects import PROBE, Listed, NoSuchObject, StoreFailed, without_password


class RemoteObjects:
    """The objects under one URL."""

    def __init__(self, url: str) -> None:
        """Raises ``UsageError`` where fsspec, or its backend for this kind of URL, is not installed."""
        self.shown = without_password(url)
        self._files, self._root = _opened(url, self.shown)

    def sizes(self) -> dict[str, int]:
        """Returns the size of each object of the uppermost folder by its name."""
        return {name: each.size for name, each in self.listed().items()}

    def listed(self, folder: str = "") -> dict[str, Listed]:
        return {_name(each): _listed(each) for each in self._entries(folder) if each["type"] == "file"}

    def folders(self, folder: str = "") -> list[str]:
        return sorted(_name(each) for each in self._entries(folder) if each["type"] == "directory")

    def get(self, name: str) -> bytes:
        with self._translated(f"read {name} of"):
            return bytes(self._files.cat_file(self._place(name)))

    def get_part(self, name: str, start: int, end: int) -> bytes:
        with self._translated(f"read {name} of"):
            return bytes(self._files.cat_file(self._place(name), start=start, end=end))

    def put(self, name: str, content: bytes) -> None:
        with self._translated("write to"):
            self._files.pipe_file(self._place(name), content)

    def create(self, name: str, content: bytes) -> bool:
        with self._translated("create an object in"):
            try:
                self._files.pipe_file(self._place(name), content, mode="create")
            except FileExistsError:
                return False
            return True

    def delete(self, names: Iterable[str]) -> None:
        with self._translated("delete from"):
            for name in names:
                try:
                    self._files.rm_file(self._place(name))
                except FileNotFoundError:
                    pass

    def address(self, name: str) -> str:
        return str(self._files.unstrip_protocol(self._place(name)))

    def probe(self) -> None:
        """Raises ``StoreFailed`` where nothing can be written."""
        self.put(PROBE, b"written to find out whether that is allowed; may be deleted\n")

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        with self._translated("list"):
            self._files.invalidate_cache()
            try:
                place = self._place(folder) if folder else self._root
                return list(self._files.ls(place, detail=True))
            except FileNotFoundError:
                return []

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NoSuchObject(f"cannot {verb} {self.shown}: there is no {error!s:.300}") from error
        except Exception as error:  # a fence: what backends raise has no base in common
            words = " ".join(str(error).split()) or "no reason given"
            raise StoreFailed(f"cannot {verb} {self.shown}: {type(error).__name__}: {words:.300}") from error


def _opened(url: str, shown: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs  # only where a URL was given
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "fsspec":
            raise
        raise UsageError(
            f"{shown} needs the package fsspec: pip install 'dataspace-server[remote]' and the backend of "
            "fsspec for this kind of URL, such as s3fs for s3:// or paramiko for sftp://"
        ) from None
    try:
        files, root = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        raise UsageError(f"{shown} needs a package that is not installed: {error}") from None
    except ValueError as error:
        raise UsageError(f"{shown}: {error}; give a directory or a URL that fsspec knows") from None
    except Exception as error:  # a fence: some backends connect now, and have their own errors
        raise StoreFailed(f"cannot open {shown}: {type(error).__name__}: {error!s:.300}") from error
    return files, str(root).rstrip("/")


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _listed(entry: dict[str, Any]) -> Listed:
    """Returns an entry of a listing; backends name the time differently, and some have none."""
    found = next((entry[name] for name in _TIMES if entry.get(name)), 0.0)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    return Listed(int(entry["size"]), found.timestamp() if isinstance(found, datetime) else float(found))


_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")
