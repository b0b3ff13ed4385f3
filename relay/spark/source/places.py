"""Places: how far a query has come with each of its daemons, as the one text that Spark keeps.

With one daemon it is an offset; with several it is their offsets in the order of ``url``.  Either way the
pattern stands beside them, because a checkpoint that goes on with another one would mix two things in one
result.  Apart from the offsets, which know one daemon and no pattern.

Always: the same place is the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataspace.errors import UsageError
from index.patterns.text import unparse_pattern
from relay.spark.common.schema import parsed
from relay.spark.source.offsets import DataLoss, Json, Offset, offset

PATTERN: Final = "pattern"


def place(offsets: Sequence[Offset], pattern: str) -> Json:
    """The text, as Spark turns it into one.

    >>> place([Offset(7, "s")], "p( $x )")
    {'epoch': 7, 'space': 's', 'pattern': 'p($x)'}
    """
    said = unparse_pattern(parsed(pattern))
    if len(offsets) == 1:
        return {**offsets[0].json(), PATTERN: said}
    return {"daemons": [each.json() for each in offsets], PATTERN: said}


def offsets_of(said: Json, urls: Sequence[str], pattern: str) -> list[Offset]:
    """The offsets that a text from a checkpoint means.

    Raises ``UsageError`` for the checkpoint of another pattern or of another number of daemons, and
    ``DataLoss`` for a text that is none of ours.
    """
    kept = {name: value for name, value in said.items() if name != PATTERN}
    before, now = said.get(PATTERN), unparse_pattern(parsed(pattern))
    if before != now:
        raise UsageError(
            f"the checkpoint is of the pattern {before}, the query asks for {now}: "
            f"give it a checkpoint of its own"
        )
    several = kept.get("daemons", [kept])
    if not isinstance(several, list):
        raise DataLoss(f"the checkpoint holds {said!r}, which is no offset of a dataspace")
    if len(several) != len(urls):
        raise UsageError(
            f"the checkpoint is of {len(several)} daemons, url names {len(urls)}: {', '.join(urls)}"
        )
    return [offset(each) for each in several]
