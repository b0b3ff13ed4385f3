"""Tables of the product, and which of their entries a run has met: accepted, and refused.

The entries are read from the product, so that a new verb, packet, route, command or construct is wanting
until something of it was accepted and something refused.  What cannot be met is listed with the reason.

Always: an entry counts for what the product has answered; a listed entry that was met after all is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

ACCEPTED, REFUSED = "accepted", "refused"
NONE: Final[Mapping[str, str]] = {}


class Table:
    """The entries of one table, and how often each was accepted and refused."""

    def __init__(
        self,
        name: str,
        entries: Iterable[str],
        *,
        unaccepted: Mapping[str, str] = NONE,
        unrefused: Mapping[str, str] = NONE,
    ) -> None:
        """``unaccepted`` and ``unrefused`` are entries that cannot be met so, each with the reason."""
        self.name = name
        self.entries = tuple(dict.fromkeys(entries))
        self.listed: Final = {ACCEPTED: unaccepted, REFUSED: unrefused}
        self.met: Final[dict[str, Counter[str]]] = {ACCEPTED: Counter(), REFUSED: Counter()}

    def note(self, entry: str, outcome: str) -> None:
        """Counts an entry that was accepted or refused."""
        assert entry in self.entries, f"{self.name} have no {entry!r}"
        self.met[outcome][entry] += 1

    def lacks(self, entry: str, outcome: str) -> bool:
        """True if an entry has still to be met so."""
        return not self.met[outcome][entry]

    @property
    def wrong(self) -> list[str]:
        """What was never met and is not listed; what is listed and was met, or is no entry."""
        found = []
        for outcome, listed in self.listed.items():
            met = self.met[outcome]
            found += [
                f"never {outcome}: {each}" for each in self.entries if not met[each] and each not in listed
            ]
            found += [
                f"{outcome} after all: {each}, listed as: {listed[each]}" for each in listed if met[each]
            ]
            found += [f"listed, and no entry: {each}" for each in listed if each not in self.entries]
        return [f"{self.name}: {each}" for each in found]

    def __str__(self) -> str:
        """The figures, and a line for each listed entry."""
        count = len(self.entries)
        figures = [f"{sum(map(bool, met.values()))} {outcome}" for outcome, met in self.met.items()]
        lines = [f"{self.name}: of {count} {' and '.join(figures)}"]
        for outcome, listed in self.listed.items():
            lines += [f"  not {outcome}: {each}: {why}" for each, why in listed.items()]
        return "\n".join(lines)
