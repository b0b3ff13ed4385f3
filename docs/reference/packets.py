"""The page of packets: the vocabulary of the wire, from the table that the program checks frames with."""

from __future__ import annotations

from typing import Final

from dataspace.wire.packets import _NAMES, DEFAULTS, TABLE, VERSIONS
from docs.reference.tables import code, one_line, table

HEAD: Final = f"""\
# Packets

Every packet of the wire, versions {VERSIONS[0]} to {VERSIONS[1]}, with the check that each field
must pass. A packet is a msgpack array of its number and its fields, in a frame with a length before it.
[Wire protocol](wire.md) says what they mean, with a recorded session.
"""


def page() -> str:
    """Returns the page."""
    parts = [HEAD]
    for number, (kind, checks) in sorted(TABLE.items()):
        least = len(checks) - len(DEFAULTS.get(kind, ()))
        rows = [
            (code(name), _NAMES[check] + " (may be absent)" * (at >= least))
            for at, (name, check) in enumerate(zip(kind._fields, checks, strict=True))
        ]
        parts.append(
            f"## {number} {kind.__name__}\n\n{one_line(kind.__doc__)}\n\n{table(('field', 'must be'), rows)}"
        )
    return "\n\n".join(parts) + "\n"
