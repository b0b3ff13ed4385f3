"""The rows of a query: tuples of values with the names of their columns, all of one epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast, overload

from dataspace.client.query import columns
from index.values.values import Value

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # its stubs are a package of their own
    import pyarrow


class Rows(Sequence[tuple[Value, ...]]):
    """The result of a query: a sequence of tuples, each once; ``names`` are the names of the columns."""

    __slots__ = ("_rows", "epoch", "names")

    def __init__(self, names: tuple[str, ...], rows: Sequence[tuple[Value, ...]], epoch: int) -> None:
        self.names = names
        self.epoch = epoch
        self._rows = rows

    @overload
    def __getitem__(self, at: int) -> tuple[Value, ...]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[Value, ...]]: ...

    def __getitem__(self, at: int | slice) -> tuple[Value, ...] | Sequence[tuple[Value, ...]]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {', '.join(self.names)} at epoch {self.epoch}>"

    def dicts(self) -> Iterator[dict[str, Value]]:
        """Yields each row as a dictionary."""
        for row in self._rows:
            yield dict(zip(self.names, row, strict=True))

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a data frame; needs pandas.

        A column of one kind has its type (``int64``, ``float64``, ``bool``, times in UTC; ``Int64`` and so on
        where there are nulls), any other column has the values as objects.  ``attrs["epoch"]`` is the epoch.
        """
        return cast("pandas.DataFrame", columns.pandas_frame(self.names, self._rows, self.epoch))

    def to_arrow(self) -> pyarrow.Table:
        """Returns the rows as a table of Arrow; needs pyarrow.

        A column of one kind has its type (``int64``, ``uint64``, ``double``, ``bool``, ``string``,
        ``binary``, ``timestamp[us, UTC]``), with nulls where there are some.  Any other column has the text
        of its values and the metadata ``dataspace: text``.
        """
        return cast("pyarrow.Table", columns.arrow_table(self.names, self._rows, self.epoch))
