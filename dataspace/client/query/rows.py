"""The rows of a query: tuples of values with the names of their columns, all of one epoch.

In Arrow and in pandas, a column has the type of its values if all of them, nulls aside, are of one kind that
the table knows.  Every other column, such as one of records or of integers and text, has the text of its
values, as patterns are written, so that nothing is guessed and nothing is lost.  pyarrow and pandas are
imported when needed.

Always: a value of a typed column is the value itself; ``1``, ``1.0`` and ``true`` are never made equal.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from dataspace.errors import UsageError
from index.patterns.text import unparse
from index.values.values import Value

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # its stubs are a package of their own
    import pyarrow
    from typing_extensions import TypeVar as DefaultingTypeVar

    Row = DefaultingTypeVar("Row", default=tuple[Value, ...])
else:
    Row = TypeVar("Row")  # a default is for type checkers, and Python 3.11 has none

T = TypeVar("T")


class Rows(Sequence[Row], Generic[Row]):
    """The result of a query: a sequence of rows, each once; ``names`` are the names of the columns.

    Rows are tuples of values, or instances of the class that the query has named.  Tables and dictionaries
    are of the values in either case.
    """

    __slots__ = ("_rows", "_values", "epoch", "names")

    def __init__(
        self,
        names: tuple[str, ...],
        rows: Sequence[tuple[Value, ...]],
        epoch: int,
        make: Callable[[tuple[Value, ...]], Row] | None = None,
    ) -> None:
        self.names = names
        self.epoch = epoch
        self._values = rows
        self._rows: Sequence[Any] = rows if make is None else [make(each) for each in rows]

    @property
    def untyped(self) -> Rows:
        """The same rows as tuples."""
        return Rows(self.names, self._values, self.epoch)

    def made_by(self, make: Callable[[tuple[Value, ...]], T]) -> Rows[T]:
        """Returns rows that a function makes of the tuples; O(rows)."""
        return Rows(self.names, self._values, self.epoch, make)

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...

    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        columns = f" of {', '.join(self.names)}" if self._rows is self._values else ""
        return f"<{len(self)} rows{columns} at epoch {self.epoch}>"

    def dicts(self) -> Iterator[dict[str, Value]]:
        """Yields each row as a dictionary."""
        for row in self._values:
            yield dict(zip(self.names, row, strict=True))

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a data frame; needs pandas.

        A column of one kind has its type (``int64``, ``float64``, ``bool``, times in UTC; ``Int64`` and so on
        where there are nulls), any other column has the values as objects.  ``attrs["epoch"]`` is the epoch.
        """
        return cast("pandas.DataFrame", _pandas_frame(self.names, self._values, self.epoch))

    def to_arrow(self) -> pyarrow.Table:
        """Returns the rows as a table of Arrow; needs pyarrow.

        A column of one kind has its type (``int64``, ``uint64``, ``double``, ``bool``, ``string``,
        ``binary``, ``timestamp[us, UTC]``), with nulls where there are some.  Any other column has the text
        of its values and the metadata ``dataspace: text``.
        """
        return cast("pyarrow.Table", _arrow_table(self.names, self._values, self.epoch))


# -- columns ---------------------------------------------------------------------------------------


class ColumnKind(enum.Enum):
    """What a column holds: the Arrow type, and the type in pandas without nulls and with them."""

    NULL = ("null", "object", "object")
    BOOL = ("bool_", "bool", "boolean")
    INT = ("int64", "int64", "Int64")
    UINT = ("uint64", "uint64", "UInt64")
    FLOAT = ("float64", "float64", "Float64")
    TEXT = ("string", "object", "object")
    BYTES = ("binary", "object", "object")
    TIME = ("timestamp", "datetime64[us, UTC]", "datetime64[us, UTC]")
    OTHER = ("string", "object", "object", "as text")  # else it would be another name of TEXT

    def pandas_type(self, values: Sequence[Value]) -> str:
        """Returns the type of a column of these values in pandas."""
        return str(self.value[2] if None in values else self.value[1])


_KINDS: Final[dict[type, ColumnKind]] = {
    bool: ColumnKind.BOOL,
    float: ColumnKind.FLOAT,
    str: ColumnKind.TEXT,
    bytes: ColumnKind.BYTES,
    datetime: ColumnKind.TIME,
}


def kind_of(values: Sequence[Value]) -> ColumnKind:
    """Returns what a column of these values holds; O(values).

    >>> kind_of([1, None, 2]), kind_of([1, 1 << 63]), kind_of([1, 1.0]), kind_of([-1, 1 << 63])
    (<ColumnKind.INT: ...>, <ColumnKind.UINT: ...>, <ColumnKind.OTHER: ...>, <ColumnKind.OTHER: ...>)
    """
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return ColumnKind.NULL
    if len(kinds) > 1:
        return ColumnKind.OTHER
    (kind,) = kinds
    if kind is not int:
        return _KINDS.get(kind, ColumnKind.OTHER)
    numbers = [value for value in values if isinstance(value, int)]
    lowest, highest = min(numbers), max(numbers)
    if lowest >= -(1 << 63) and highest < 1 << 63:
        return ColumnKind.INT
    return ColumnKind.UINT if lowest >= 0 and highest < 1 << 64 else ColumnKind.OTHER


def _plain(kind: ColumnKind, values: Sequence[Value]) -> list[object]:
    """Returns the values of a column as its table has them: as text where it has no type for them."""
    if kind is not ColumnKind.OTHER:
        return list(values)
    return [None if value is None else unparse(value) for value in values]


def _arrow_table(names: Sequence[str], rows: Sequence[Sequence[Value]], epoch: int) -> object:
    """Returns a ``pyarrow.Table``; raises ``UsageError`` where pyarrow is not installed.

    A column with the text of its values has the metadata ``dataspace: text``, and the table the epoch.
    """
    arrow = _needed("pyarrow")
    fields, arrays = [], []
    for at, name in enumerate(names):
        values = [row[at] for row in rows]
        kind = kind_of(values)
        dtype = arrow.timestamp("us", "UTC") if kind is ColumnKind.TIME else getattr(arrow, kind.value[0])()
        fields.append(
            arrow.field(name, dtype, metadata={"dataspace": "text"} if kind is ColumnKind.OTHER else None)
        )
        arrays.append(arrow.array(_plain(kind, values), dtype))
    schema = arrow.schema(fields, metadata={"dataspace.epoch": str(epoch)})
    if not fields:  # a table without columns has rows all the same
        return arrow.Table.from_struct_array(arrow.array([{}] * len(rows), arrow.struct([])))
    return arrow.Table.from_arrays(arrays, schema=schema)


def _pandas_frame(names: Sequence[str], rows: Sequence[Sequence[Value]], epoch: int) -> object:
    """Returns a ``pandas.DataFrame``; raises ``UsageError`` where pandas is not installed.

    A column without a type of its own has the values as they are.  ``frame.attrs`` has the ``epoch``.
    """
    pandas = _needed("pandas")
    columns = []
    for at, _ in enumerate(names):
        values = [row[at] for row in rows]
        kind = kind_of(values)
        made_of = _masked_floats(pandas, values) if kind is ColumnKind.FLOAT and None in values else values
        columns.append(pandas.Series(made_of, dtype=kind.pandas_type(values)))
    numbered = dict(enumerate(columns))  # two columns may have one name
    frame = pandas.DataFrame(numbered, index=pandas.RangeIndex(len(rows)))
    frame.columns = list(names)
    frame.attrs["epoch"] = epoch
    return frame


def _masked_floats(pandas: ModuleType, values: Sequence[Value]) -> object:
    """Returns floats and nulls as pandas has them; pandas itself would take NaN for a null as well."""
    numpy = _needed("numpy")
    mask = numpy.array([each is None for each in values])
    return pandas.arrays.FloatingArray(numpy.array([0.0 if each is None else each for each in values]), mask)


def _needed(name: str) -> ModuleType:
    """Returns a module that is not installed with dataspace; raises ``UsageError`` where it is missing."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed, and this needs it: pip install {name}") from None
