"""Delta tables: an archive's objects in columns under a name, for programs that read tables of Delta Lake.

Each label and number of fields has a table in the folder of its objects, so nothing is copied: a commit of
the table (``_delta_log``) names the objects of one version of the archive.  Rows that are in the object of
rare labels are written once more, into ``_rows``, since a table must have all rows.  Tables are derived: they
can be deleted and made again.

Always: a version of a table has each row of one version of the archive once; a commit is created only if
there is none of its number, so two processes may keep one table.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote

from dataspace.codec import unpack_own
from dataspace.errors import DataspaceError
from index.values.values import Record, Value
from relay.archive.archive import Archive
from relay.archive.columns import field_arrays, kinds_of_rest, label_folder
from relay.archive.footers import Footer, footer_of
from relay.archive.manifest import COLUMNS, ArchivedFile
from relay.archive.orphans import DELTA_LOG, DELTA_ROWS
from relay.objects.objects import StoreFailed

FEATURE: Final = "dataspaceArchive"
"""A feature that no other program knows, so that none writes to a table, or deletes files of the archive."""

_LASTING: Final = "interval 36500 days"

_COMMIT: Final = re.compile(r"(\d{20})\.json")


class TableBroken(DataspaceError):
    """The commits of a table are not what was written, or some are missing."""

    code: Final = "table-broken"


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A table that is up to date: where it is, its version, the archive's version, and its files and rows.

    ``changed`` if a commit was written now.
    """

    label: str
    arity: int
    address: str
    version: int
    archive_version: int
    files: int
    rows: int
    changed: bool


@dataclass(slots=True)
class _Known:
    """A table as its commits say: the files by path, with their rows, and the types of its columns."""

    version: int = -1
    archive_version: int = 0
    files: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file that a table is to have: its path below the table, and its name in the store.

    ``rest`` is the object of rare labels that its rows are copied from.
    """

    path: str
    name: str
    size: int
    rest: str = ""


class DeltaTables:
    """The tables of one archive.  All calls block."""

    def __init__(self, archive: Archive) -> None:
        self.archive: Final = archive
        self._rare: dict[str, frozenset[tuple[str, int]]] = {}
        """The labels and numbers of fields in objects of rare labels, by their paths."""
        self._known: dict[tuple[str, int], _Known] = {}

    def left_out(self, pattern: Value = None) -> list[str]:
        """Returns the labels without a table: no program of Delta opens a folder with a percent sign."""
        return sorted(
            {label for label, arity in self._with_objects(pattern) if not self._can_be_opened(label, arity)}
        )

    def update(self, pattern: Value = None) -> Iterator[DeltaTable]:
        """Brings the tables up to date, all or the tables that may have facts of a pattern, and yields them.

        Reads the footers of new objects, and the objects of rare labels that were not read before.  An error
        of one table stops that table alone, and is raised after the others, the first of several.  Raises
        ``StoreFailed`` at once, and ``UsageError`` for a pattern without a label.
        """
        self.archive.refresh()
        wanted = {each for each in self._with_objects(pattern) if self._can_be_opened(*each)}
        files = self._files(wanted)
        failed: list[DataspaceError] = []
        for label, arity in sorted(wanted):
            try:
                table = self._kept(label, arity, files.get((label, arity), {}))
            except StoreFailed:
                raise
            except TableBroken as error:
                failed.append(error)
            except Exception as error:  # noqa: BLE001  a table is derived: what stops one stops no other
                failed.append(TableBroken(f"table {label}/{arity}: {type(error).__name__}: {error!s:.300}"))
            else:
                yield table
        self._delete_rows(wanted)
        if failed:
            raise failed[0]

    # -- what a table is to have ------------------------------------------------------------------------

    def _with_objects(self, pattern: Value = None) -> set[tuple[str, int]]:
        """Returns the labels and numbers of fields that have objects of their own."""
        return {(file.label, file.arity) for _, file in self.archive.files(pattern) if file.label is not None}

    def _can_be_opened(self, label: str, arity: int) -> bool:
        return "%" not in self.archive.name(_folder(label, arity))

    def _files(self, tables: set[tuple[str, int]]) -> dict[tuple[str, int], dict[str, _Wanted]]:
        """Returns the files of each table by their paths."""
        found: dict[tuple[str, int], dict[str, _Wanted]] = {}
        rare: dict[str, frozenset[tuple[str, int]]] = {}
        for _, file in self.archive.files():
            if file.form != COLUMNS:
                continue
            base = file.path.rpartition("/")[2]
            if file.label is not None:
                wanted = _Wanted(base, self.archive.name(file.path), file.size)
                found.setdefault((file.label, file.arity), {})[wanted.path] = wanted
                continue
            there = rare[file.path] = self._rare.get(file.path) or self._labels_of(file)
            for key in there & tables:
                path = f"{DELTA_ROWS}/{base}"
                name = self.archive.name(f"{_folder(*key)}/{path}")
                found.setdefault(key, {})[path] = _Wanted(path, name, 0, rest=file.path)
        self._rare = rare
        return found

    def _labels_of(self, file: ArchivedFile) -> frozenset[tuple[str, int]]:
        return kinds_of_rest(self.archive.objects.get(self.archive.name(file.path)))

    # -- commits ----------------------------------------------------------------------------------------

    def _kept(self, label: str, arity: int, wanted: Mapping[str, _Wanted]) -> DeltaTable:
        folder = self.archive.name(_folder(label, arity))
        known = self._known.setdefault((label, arity), _Known())
        now, changed = self.archive.manifest.version, False
        while True:
            self._read(folder, known)
            added = [each for path, each in wanted.items() if path not in known.files]
            removed = [path for path in known.files if path not in wanted]
            if known.archive_version >= now or not (added or removed):
                break
            commit = self._commit(label, arity, known, added, removed)
            changed = self.archive.objects.create(
                f"{folder}/{DELTA_LOG}/{known.version + 1:020}.json", commit
            )
        address = self.archive.objects.address(folder)
        rows = sum(known.files.values())
        return DeltaTable(
            label, arity, address, known.version, known.archive_version, len(known.files), rows, changed
        )

    def _read(self, folder: str, known: _Known) -> None:
        """Reads the commits that are not known yet."""
        found = map(_COMMIT.fullmatch, self.archive.objects.listed(f"{folder}/{DELTA_LOG}"))
        versions = sorted(int(each[1]) for each in found if each)
        if versions[: known.version + 1] != [*range(known.version + 1)]:  # somebody made the table anew
            known.version, known.archive_version = -1, 0
            for each in (known.files, known.sizes, known.columns):
                each.clear()
        if versions != [*range(len(versions))]:
            place = self.archive.objects.address(f"{folder}/{DELTA_LOG}")
            raise TableBroken(f"{place} lacks versions; delete it, and the table is made anew")
        for version in versions[known.version + 1 :]:
            name = f"{folder}/{DELTA_LOG}/{version:020}.json"
            try:
                for line in self.archive.objects.get(name).splitlines():
                    _take(known, json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise TableBroken(
                    f"{self.archive.objects.address(name)} is no commit: {error!r:.200}"
                ) from None
            known.version = version

    def _commit(
        self, label: str, arity: int, known: _Known, added: Iterable[_Wanted], removed: Iterable[str]
    ) -> bytes:
        """Returns the next commit of a table; writes the rows of rare labels that it names."""
        now = time.time_ns() // 1_000_000
        adds = [(each, *self._footer(label, arity, each)) for each in added]
        gone = [*removed]
        columns: dict[str, str] = {} if known.files.keys() <= {*gone} else dict(known.columns)
        for _, footer, _ in adds:
            for column, kind in footer.columns.items():
                if columns.setdefault(column, kind) != kind:
                    raise TableBroken(
                        f"column {column} of {label}/{arity} is {kind}, and was {columns[column]}"
                    )
        columns = {**known.columns, **columns}  # a merge that settles classes anew replaces all files
        changes = sum([footer.rows for _, footer, _ in adds]) != sum([known.files[path] for path in gone])
        actions: list[Mapping[str, object]] = []
        if known.version < 0:
            actions.append({"protocol": _PROTOCOL})
        if columns != known.columns:
            actions.append({"metaData": self._metadata(label, arity, columns, now)})
        archive = self.archive.place.identity
        actions.append(
            {"txn": {"appId": archive, "version": self.archive.manifest.version, "lastUpdated": now}}
        )
        for path in gone:
            actions.append(
                {
                    "remove": {
                        "path": quote(path),
                        "deletionTimestamp": now,
                        "dataChange": changes,
                        "extendedFileMetadata": True,
                        "partitionValues": {},
                        "size": known.sizes[path],
                    }
                }
            )
        for wanted, footer, size in adds:
            actions.append(
                {
                    "add": {
                        "path": quote(wanted.path),
                        "partitionValues": {},
                        "size": size,
                        "modificationTime": now,
                        "dataChange": changes,
                        "stats": json.dumps(footer.statistics()),
                    }
                }
            )
        actions.append({"commitInfo": {"timestamp": now, "operation": "WRITE", "engineInfo": "dataspace"}})
        return b"".join([json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in actions])

    def _footer(self, label: str, arity: int, wanted: _Wanted) -> tuple[Footer, int]:
        """Returns the footer and the size of a file, which is written first if its rows are rare."""
        if not wanted.rest:
            return footer_of(self.archive.objects, wanted.name, wanted.size), wanted.size
        rest = self.archive.objects.get(self.archive.name(wanted.rest))
        content = rows_in_rest(rest, label, arity, self.archive.manifest.types[f"{label}/{arity}"])
        self.archive.objects.put(wanted.name, content)
        return footer_of(self.archive.objects, wanted.name, len(content)), len(content)

    def _metadata(self, label: str, arity: int, columns: Mapping[str, str], now: int) -> Mapping[str, object]:
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()
        ]
        name = f"{self.archive.place.space}/{label}/{arity}"
        return {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.archive.place.identity}/{label}/{arity}")),
            "name": name,
            "description": f"changes of {label} with {arity} fields, from an archive of dataspace",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {
                "delta.deletedFileRetentionDuration": _LASTING,
                "delta.logRetentionDuration": _LASTING,
            },
            "createdTime": now,
        }

    # -- rare rows --------------------------------------------------------------------------------------

    def _delete_rows(self, tables: Iterable[tuple[str, int]]) -> None:
        """Deletes copied rows once the object that they were copied from is deleted."""
        there = self.archive.objects.listed(self.archive.name(f"{COLUMNS}/rest"))
        for label, arity in tables:
            folder = self.archive.name(f"{_folder(label, arity)}/{DELTA_ROWS}")
            copied = self.archive.objects.listed(folder)
            self.archive.objects.delete([f"{folder}/{name}" for name in copied if name not in there])


def _folder(label: str, arity: int) -> str:
    """Returns the folder of a table below the folder of its archive."""
    return f"{COLUMNS}/{label_folder(label, arity)}"


def error_of_tables(tables: DeltaTables) -> str:
    """Brings all tables up to date; returns why that failed, an empty text if it did not.

    Tables are derived, so whatever fails in them stops neither archiving nor erasing: it is only reported.
    """
    try:
        for _ in tables.update():
            pass
    except Exception as error:  # noqa: BLE001  as above: the caller reports it
        return str(error) if isinstance(error, DataspaceError) else f"{type(error).__name__}: {error!s:.300}"
    return ""


def rows_in_rest(content: bytes, label: str, arity: int, classes: str) -> bytes:
    """Returns an object with the rows of one label and number of fields out of the object of rare labels."""
    from pyarrow import BufferOutputStream, BufferReader, compute, parquet

    rest = parquet.read_table(BufferReader(content))
    mine = compute.and_kleene(
        compute.equal(rest.column("label"), label), compute.equal(rest.column("arity"), arity)
    )
    rest = rest.filter(mine)
    facts = [cast(Record, unpack_own(each)) for each in rest.column("value").to_pylist()]
    columns = rest.drop_columns(["label", "arity", "value"])
    for name, array in field_arrays([fact.fields for fact in facts], classes):
        columns = columns.append_column(name, array)
    sink = BufferOutputStream()
    metadata = {"label": label, "arity": arity, "classes": classes}
    parquet.write_table(
        columns.replace_schema_metadata({"dataspace": json.dumps(metadata)}), sink, compression="zstd"
    )
    return bytes(sink.getvalue())


_PROTOCOL: Final = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [FEATURE]}


def _take(known: _Known, action: Mapping[str, Any]) -> None:
    """Applies an action of a commit to the known content of a table."""
    match action:
        case {"add": added}:
            known.files[added["path"]] = int(json.loads(added["stats"])["numRecords"])
            known.sizes[added["path"]] = int(added["size"])
        case {"remove": removed}:
            known.files.pop(removed["path"], None)
            known.sizes.pop(removed["path"], None)
        case {"metaData": told}:
            fields = json.loads(told["schemaString"])["fields"]
            known.columns = {each["name"]: each["type"] for each in fields}
        case {"txn": told}:
            known.archive_version = int(told["version"])
