"""Limits of a space, counts of its content, and the refusal of a turn that goes beyond the limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dataspace.errors import Refused
from index.trie.nodes import At, all_at
from index.values.values import Value

FACT_BYTES: Final = 400
"""About what a claim on a short fact takes, in the tables and in its log."""

TEXT_BYTES: Final = 2
"""About what each character of a fact takes: its value, and the text by which it is found."""

LONG: Final = 256
PATTERN_BYTES: Final = 2_500
"""About what an observed pattern takes: its places in the index and the functions made for it."""

WIDE: Final = 4
"""Characters for which one counts in a text that is not ASCII and not below ``LONG``."""


def weight(at: At) -> int:
    """Returns the characters of a fact by its key in the index, about; O(1).

    >>> weight("(1,)p"), weight("\u00e9" * 300)
    (5, 1200)
    """
    kind = at.__class__
    if kind is str:
        size = len(at)  # type: ignore[arg-type]  # a text
        return size if size < LONG or at.isascii() else WIDE * size  # type: ignore[attr-defined]
    if kind is tuple:  # texts, and what makes them differ from those of records
        return sum(map(weight, at))  # type: ignore[call-overload]
    return WIDE * len(at) if kind is bytes else 0  # type: ignore[arg-type]


def size_of(claims: int, characters: int) -> int:
    """Returns about how many bytes of memory so many claims on facts of so many characters take.

    Measured: 0.8 to 1.3 times as much is taken by facts of plain fields, up to 4 times by deep nests of
    small records.
    """
    return FACT_BYTES * claims + TEXT_BYTES * characters


def size_of_pattern(at: At) -> int:
    """Returns about how many bytes an observed pattern takes, by its key; O(1)."""
    return PATTERN_BYTES + TEXT_BYTES * weight(at)


def weight_of(values: Sequence[Value]) -> int:
    """Returns the characters of several facts or messages; O(1) for each whose key is known."""
    return weights(all_at(values))


def weights(keys: Iterable[At]) -> int:
    """Returns the characters of several facts; O(facts)."""
    return sum([weight(at) for at in keys])


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """Limits of one owner and of the whole space; a turn beyond a limit is refused whole."""

    actions_per_turn: int = 16_384
    """A turn is atomic, so that others wait for all of it: some 50 ms for so many actions."""
    actions_per_publication: int = 1_000_000
    facts_per_owner: int = 1_000_000
    facts: int = 4_000_000
    facts_bytes_per_owner: int = 1 << 30
    facts_bytes: int = 4 << 30
    """Estimated bytes (``size_of``) of the claims of one owner, and of all owners."""
    patterns: int = 262_144
    patterns_bytes: int = 1 << 30
    """Different patterns that are observed, and about the bytes that they take."""
    rules: int = 1_000
    rules_per_owner: int = 500
    rule_bytes_per_owner: int = 1 << 20
    """Rules that one owner may assert, and the bytes of their names and texts."""
    derived_per_turn: int = 1_000_000
    derived_bytes_per_turn: int = 128 << 20
    derived_bytes: int = 128 << 20
    """Bytes, estimated by texts, of facts that rules derive and calculate in one turn, and of facts that they
    hold."""
    derive_work: int = 65_536
    derive_work_per_action: int = 20
    """Units of work that rules may do in a turn, and for each fact that comes, goes or is read in it."""
    rule_reads: int = 1_000_000
    """Facts that rules which are added, or resume, may have to read in one turn; each takes 2 to 5 µs."""
    rule_window: float = 86_400.0
    """Seconds for which a rule may look back; the log keeps the epochs of the longest window in use."""
    time_rows: int = 200_000
    """Rows of the past that all rules over time may keep; each takes about a kilobyte."""

    def check_length(self, actions: int, *, publication: bool, own: bool = False) -> None:
        """Raises ``Refused`` for a turn of too many actions; one of the daemon is measured as a
        publication."""
        what = "publication" if publication else "turn"
        name = "actions_per_publication" if publication or own else "actions_per_turn"
        limit = self.actions_per_publication if publication or own else self.actions_per_turn
        if actions > limit:
            raise Refused("limit", f"{what} of {actions} actions, the limit is limits.{name}={limit}")

    def no_room(self, owner: str, own: tuple[int, int], total: tuple[int, int]) -> Refused:
        """What a turn is refused with after which an owner, or all owners together, would claim too much.

        ``own`` and ``total`` are the facts and the bytes that there would be.
        """
        if own[0] > self.facts_per_owner:
            excess = f"{own[0]} facts of {owner}, the limit is limits.facts_per_owner={self.facts_per_owner}"
        elif own[1] > self.facts_bytes_per_owner:
            limit = f"the limit is limits.facts_bytes_per_owner={self.facts_bytes_per_owner}"
            excess = f"facts of {own[1]} bytes of {owner}, {limit}"
        elif total[0] > self.facts:
            excess = f"{total[0]} facts in the space, the limit is limits.facts={self.facts}"
        else:
            excess = (
                f"facts of {total[1]} bytes in the space, the limit is limits.facts_bytes={self.facts_bytes}"
            )
        return Refused("limit", f"{excess}; retract some, or raise it in the daemon's configuration")

    def check_patterns(self, patterns: int, size: int) -> None:
        """Raises ``Refused`` where so many patterns of so many bytes are too much."""
        if patterns > self.patterns:
            excess = f"{patterns} observed patterns, the limit is limits.patterns={self.patterns}"
        elif size > self.patterns_bytes:
            excess = (
                f"observed patterns of {size} bytes, the limit is limits.patterns_bytes={self.patterns_bytes}"
            )
        else:
            return
        raise Refused("limit", f"{excess}; end other observations, or raise it in the daemon's configuration")

    def check_rules(self, owner: str, rules: int, size: int) -> None:
        """Raises ``Refused`` where one owner would assert too many rules, or too much text in them."""
        if rules > self.rules_per_owner:
            raise Refused(
                "limit",
                f"{rules} rules of {owner}, the limit is limits.rules_per_owner={self.rules_per_owner}",
            )
        if size > self.rule_bytes_per_owner:
            most = self.rule_bytes_per_owner
            raise Refused(
                "limit", f"{size} bytes in rules of {owner}, the limit is limits.rule_bytes_per_owner={most}"
            )


@dataclass(frozen=True, slots=True)
class SpaceStatistics:
    """Counts of what a space holds: distinct facts, claims on them, owners, observed patterns.

    ``facts_bytes`` and ``patterns_bytes`` are about what claims and patterns take in memory.
    """

    epoch: int
    facts: int
    claims: int
    owners: int
    patterns: int
    observers: int
    facts_bytes: int
    patterns_bytes: int
