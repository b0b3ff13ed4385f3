"""Shapes: the different forms of the patterns that one principal observes, by space and label.

Patterns that differ in constants or in captures alone have one shape, and a value finds all of them by one
look-up.  Patterns whose constants are at other positions, or which ask for another structure or another
class, are further shapes.  Each value of the label is compared with the shapes that it may match, which a
hostile client can make all of them.  So the shapes of one label are bounded for each principal, since the
turns of all others pay for them.

Always: a shape is counted once, however many streams observe it, and until the last of them has ended.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeAlias

from dataspace.errors import Refused
from index.patterns.skeletons import Skeleton
from index.values.positions import Class

SHAPES: Final = "shapes"
"""The quota of shapes, and their name in what a principal has."""

_Label: TypeAlias = "tuple[str, Class | None]"
_NAMED: Final = 100
"""Characters of a label that a refusal shows."""


class ObservedShape:
    """One shape that a principal observes, and by how many streams."""

    __slots__ = ("at", "label", "streams")

    def __init__(self, label: _Label, at: Hashable) -> None:
        self.label: Final = label
        self.at: Final = at
        self.streams = 0


class Shapes:
    """The shapes that one principal observes."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[_Label, dict[Hashable, ObservedShape]] = {}

    @property
    def most(self) -> int:
        """Returns the number of shapes of the label that has most; O(labels)."""
        return max(map(len, self._of.values()), default=0)

    def share(self, space: str, form: Skeleton, most: int | None, who: str) -> ObservedShape:
        """Returns the shape of a pattern, counted for one more stream.

        Raises ``Refused``, and counts nothing, if it would be a further one beyond ``most`` of its label.
        """
        label = space, form.shape[0][1] if form.shape and not form.shape[0][0] else None
        at = form.way, form.group
        known = self._of.get(label, {})
        shape = known.get(at)
        if shape is None:
            if most is not None and len(known) >= most:
                raise _refusal(label, len(known) + 1, most, who)
            shape = self._of.setdefault(label, known)[at] = ObservedShape(label, at)
        shape.streams += 1
        return shape

    def release(self, shape: ObservedShape) -> None:
        """Counts a stream less of a shape."""
        shape.streams -= 1
        if not shape.streams:
            known = self._of[shape.label]
            del known[shape.at]
            if not known:
                del self._of[shape.label]


def _refusal(label: _Label, found: int, most: int, who: str) -> Refused:
    space, of = label
    named = "any label" if of is None else f"the label {of!r:.{_NAMED}}"
    return Refused(
        "limit",
        f"{found} shapes of patterns for {named} in space {space} observed by {who}, the limit is"
        f" quota.{SHAPES}={most} of each principal: observe patterns with constants at the same positions",
    )
