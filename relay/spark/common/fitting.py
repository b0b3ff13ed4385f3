"""Fitting: the values of one capture as an array of its column's type, or the error that names a misfit.

Always: nothing is converted on the way; a value that does not fit fails, is null, or takes its row with it,
as the option ``malformed`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from dataspace.errors import DataspaceError
from index.values.values import Value
from relay.spark.common.parsing import Malformed
from relay.spark.common.schema import Column, Unfit


class Misfit(DataspaceError):
    """A fact holds a value that the column for it cannot hold."""


def fitted(
    column: Column,
    values: Sequence[Value],
    malformed: Malformed,
    bad: set[int],
    epoch_of: Callable[[int], int],
) -> pa.Array:
    """Returns values as an array; values that do not fit are null and in ``bad``, if they do not fail.

    Raises ``Misfit`` with the epoch of the row.  O(values), nearly all of it in Arrow.
    """
    try:
        if not column.misfits(values):
            return pa.array(column.encoded(values), column.arrow)
    except (pa.ArrowInvalid, OverflowError, Unfit):
        pass  # one of them is other than its class promised
    if malformed == "fail" or (malformed == "null" and type(None) not in (column.fits or ())):
        raise _misfit(column, values, epoch_of)
    fitting = [column.holds(value) for value in values]
    bad.update([at for at, fits in enumerate(fitting) if not fits])
    kept = [value if fits else None for value, fits in zip(values, fitting, strict=True)]
    return pa.array(column.encoded(kept), column.arrow)


def _misfit(column: Column, values: Sequence[Value], epoch_of: Callable[[int], int]) -> Misfit:
    """Which value it was; looked for only now, one by one."""
    at = next(at for at, value in enumerate(values) if not column.holds(value))
    return Misfit(
        f"epoch {epoch_of(at)} has {_brief(values[at])} for column {column.name}, "
        f"which is {column.spark.simpleString()}: {column.remedy(values[at])}"
    )


def _brief(value: Value) -> str:
    said = repr(value)
    return f"{type(value).__name__} {said if len(said) <= 60 else said[:57] + '…'}"
