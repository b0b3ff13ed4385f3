"""What a reader of a range asks beside it: where a share of a state ends, and when rows were erased.

Always: shares that begin where the share before ended have each row of the state once.
"""

from __future__ import annotations

from dataspace.client.bulk.client import BulkClient
from index.values.values import Map, Value


def share_end(
    link: BulkClient,
    pattern: Value,
    as_of: int,
    part: tuple[int, int],
    *,
    traced: tuple[bool, bool],
    size: int | None = None,
) -> int:
    """Returns the end of a ``share`` for ``columns``: ``NUMBERS`` if the state has no more rows.

    ``part`` is the number that it begins with, and the most rows; it has one at least.  With ``size`` they
    are of at most so many bytes.  ``traced`` says
    whether it will be read with ``asserted`` and with ``owners``, so that the daemon prepares the state once.
    """
    low, rows = part
    asserted, owners = traced
    said: dict[str, Value] = {"pattern": pattern, "as_of": as_of, "low": low, "changes": rows}
    said |= {} if size is None else {"bytes": size}
    said |= {name: True for name, wanted in (("asserted", asserted), ("owners", owners)) if wanted}
    return int(link.request("within", said))  # type: ignore[arg-type]  # a number, by WIRE.md


def erased_at(link: BulkClient, after: int, upto: int) -> int:
    """Returns when rows near epochs in (after, upto] were erased last, in microseconds since 1970, or 0."""
    answer = link.request("frontier", {"erased": (after, upto)})
    return int(answer.get("erased", 0)) if isinstance(answer, Map) else 0  # type: ignore[arg-type]  # by WIRE.md
