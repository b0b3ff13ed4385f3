"""A store of objects under a URL: S3, SFTP, WebDAV and whatever else fsspec has a backend for.

It is apart because only this file uses fsspec, which the extra ``remote`` brings, and because each backend
has errors of its own.  What a backend needs to know beyond the URL, such as credentials, it reads from where
its users have it: the variables of its tools, or fsspec's own configuration.

Always: an error is a ``StoreFailed`` with the URL in it, without a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from dataspace.errors import DataspaceError, UsageError

PROBE: Final = "probe"
"""An object that is written and deleted to find out whether that is allowed."""


class StoreFailed(DataspaceError):
    """The store refused or did not answer; the message has the backend's words."""


class Store:
    """The objects under one URL, all in one folder."""

    def __init__(self, url: str) -> None:
        """Raises ``UsageError`` where fsspec, or its backend for this kind of URL, is not installed."""
        self.shown: Final = re.sub(r"//[^/@]*:[^/@]*@", "//…@", url)
        self._files, self._root = _opened(url, self.shown)

    def sizes(self) -> dict[str, int]:
        """Returns the size of each object by its name; none where there is no such folder."""
        with self._translated("list"):
            self._files.invalidate_cache()
            try:
                found = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
            return {_name(each): int(each["size"]) for each in found if each["type"] == "file"}

    def get(self, name: str) -> bytes:
        """Returns the content of an object."""
        with self._translated(f"read {name} of"):
            return bytes(self._files.cat_file(self._place(name)))

    def put(self, name: str, content: bytes) -> None:
        """Writes an object; an interrupted call may leave a shorter object."""
        with self._translated("write to"):
            self._files.pipe_file(self._place(name), content)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects."""
        with self._translated("delete from"):
            for name in names:
                self._files.rm_file(self._place(name))

    def probe(self) -> None:
        """Raises ``StoreFailed`` where nothing can be written."""
        self.put(PROBE, b"written to find out whether that is allowed; may be deleted\n")

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
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
