"""Footers: the columns of an object in Parquet, and the bounds of their values, out of its last bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from relay.objects.objects import Objects

FOOTER_BYTES: Final = 65_536
"""Bytes of the first request; most footers are shorter."""

TEXT: Final = 32
"""Characters of a text that is a bound."""


@dataclass(frozen=True, slots=True)
class Footer:
    """Columns with their types in the words of Delta Lake, rows, and for each column the number of nulls and
    the bounds, where they are known."""

    columns: Mapping[str, str]
    rows: int
    nulls: Mapping[str, int]
    bounds: Mapping[str, tuple[Any, Any]]

    def statistics(self) -> Mapping[str, object]:
        """Returns what an ``add`` action says of a file; times are rounded outwards to milliseconds.

        A time in the last millisecond of the calendar has nothing above it, so its column has no upper bound.
        """
        least = {name: _spelled(low) for name, (low, _) in self.bounds.items()}
        most = {
            name: _spelled(above)
            for name, (_, high) in self.bounds.items()
            if (above := _above(high)) is not None
        }
        return {"numRecords": self.rows, "minValues": least, "maxValues": most, "nullCount": {**self.nulls}}


def footer_of(objects: Objects, name: str, size: int) -> Footer:
    """Reads the footer of an object; one request or two."""
    from pyarrow import BufferReader, parquet

    tail = objects.get_part(name, max(0, size - FOOTER_BYTES), size)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = objects.get_part(name, size - length, size)
    read = parquet.ParquetFile(BufferReader(bytes(12) + tail))
    columns = {each.name: _kind(each.type) for each in read.schema_arrow}
    return Footer(columns, read.metadata.num_rows, *_sums(read.metadata))


def _sums(metadata: Any) -> tuple[dict[str, int], dict[str, tuple[Any, Any]]]:
    """Returns the nulls and the bounds of all row groups together."""
    nulls: dict[str, int] = {}
    bounds: dict[str, tuple[Any, Any]] = {}
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns):
        chunks = [group.column(at) for group in groups]
        stats = [each.statistics for each in chunks if each.num_values]
        if any(each is None for each in stats):
            continue
        name = metadata.schema.column(at).path
        if all(each.has_null_count for each in stats):
            nulls[name] = sum([each.null_count for each in stats])
        known = [each for each in stats if each.has_min_max]
        if known and all(each.has_min_max or not each.num_values for each in stats):
            low, high = min(each.min for each in known), max(each.max for each in known)
            if _is_bound(low) and _is_bound(high):
                bounds[name] = (low, high)
    return nulls, bounds


def _is_bound(value: object) -> bool:
    """True for a value that JSON can say exactly, or that is a time."""
    match value:
        case bool() | bytes():
            return False
        case float():
            return math.isfinite(value)
        case str():
            return len(value) <= TEXT
    return isinstance(value, int | datetime)


def _above(value: Any) -> Any:
    """Returns a bound that is not below a value and has whole milliseconds; None if there is none."""
    if not isinstance(value, datetime):
        return value
    step = timedelta(microseconds=-value.microsecond % 1000)
    return value + step if value.replace(tzinfo=None) <= datetime.max - step else None


def _spelled(value: Any) -> Any:
    """Returns a bound as JSON has it; a time with four digits of the year, which ``%Y`` does not give."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value


def _kind(of: Any) -> str:
    """Returns the word of Delta Lake for a type of Arrow."""
    import pyarrow

    kinds = {
        pyarrow.bool_(): "boolean",
        pyarrow.int16(): "short",
        pyarrow.int32(): "integer",
        pyarrow.int64(): "long",
        pyarrow.float64(): "double",
        pyarrow.string(): "string",
        pyarrow.binary(): "binary",
    }
    return "timestamp" if pyarrow.types.is_timestamp(of) else kinds[of]
