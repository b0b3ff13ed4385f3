"""States in parts: where a share of a state ends that has so many rows.

Always: shares that begin where the share before ended have each row of the state once.
"""

from __future__ import annotations

from dataspace.client.bulk.client import BulkClient
from index.values.values import Value


def share_end(
    link: BulkClient, pattern: Value, as_of: int, part: tuple[int, int], *, traced: tuple[bool, bool]
) -> int:
    """Returns the end of a ``share`` for ``columns``: ``NUMBERS`` if the state has no more rows.

    ``part`` is the number that it begins with, and the most rows; it has one at least.  ``traced`` says
    whether it will be read with ``asserted`` and with ``owners``, so that the daemon prepares the state once.
    """
    low, rows = part
    asserted, owners = traced
    said: dict[str, Value] = {"pattern": pattern, "as_of": as_of, "low": low, "changes": rows}
    said |= {name: True for name, wanted in (("asserted", asserted), ("owners", owners)) if wanted}
    return int(link.request("within", said))  # type: ignore[arg-type]  # a number, by WIRE.md
