"""A drawing of some interests alone, for an asker that may not see all of a space.

The trie of a space shows in its boxes what others observe, and constants and counts of facts.  So an asker
with fewer rights gets the trie of those interests that it might have itself, made for it and without facts.

Always: nothing of other interests or of any fact is in the drawing, which says that it withholds something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataspace.kernel.interests import Interest
from index.trie.drawings import Drawing
from index.trie.trie import Index
from index.values.values import Map, Value

MOST: Final = 1_000
"""Interests in one drawing."""

_BOX: Final = ("box", "above", "kind", "text", "passed")

_COMMENT: Final = {Drawing.TEXT: "", Drawing.MERMAID: "%% ", Drawing.DOT: "// "}


def draw_alone(interests: Sequence[Interest], withheld: int, form: str, *, most: int) -> str:
    """Returns a drawing of at most ``MOST`` interests, and a line with the number of those ``withheld``.

    Raises ``UsageError`` for an unknown form.  O(interests).
    """
    drawn = alone(interests).draw(form, most=most)
    told = f"withheld: {withheld} patterns that this token may not observe, and all counts of values"
    return f"{drawn}{_COMMENT[Drawing(form)]}{told}\n"


def box_rows(index: Index, value: tuple[()] | tuple[Value], *, most: int) -> tuple[Map, ...]:
    """Returns the boxes of a drawing, for programs; those on the way of a value are marked.  O(boxes)."""
    return tuple([Map(dict(zip(_BOX, box, strict=True))) for box in index.drawn_rows(*value, most=most)])


def alone(interests: Sequence[Interest]) -> Index:
    """Returns an index of at most ``MOST`` interests, without facts; O(interests)."""
    index = Index()
    for interest in interests[:MOST]:
        index.add_handler(interest.skeleton, _nothing)
    return index


def _nothing(*_args: object) -> None:
    """The handler of interests that are only drawn."""
