"""Facts that are rules: ``rule(name, text)``, and the errors of rules that cannot be carried out."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, TypeGuard

from dataspace.kernel.handles import ALL, SECRET
from dataspace.kernel.limits import SpaceLimits
from dataspace.rules.relations.budgets import Bounds
from dataspace.rules.relations.failures import complaint
from dataspace.rules.relations.terms import MAX_FACT, size_in_facts
from index.patterns.text import unparse
from index.values.values import Map, Record, Value, text_of

WITHOUT: Final = "not carried out: no rules are here (limits.rules=0, or --without-rules)"


class RuleQuotas:
    """How many rules, and how much text in them, each owner asserts; looked at when it asserts another one.

    ``exempt`` are owners that may assert any number.
    """

    def __init__(self, limits: SpaceLimits) -> None:
        self.exempt: frozenset[str] = frozenset()
        self.admit: Callable[[str, int, int], None] = _unbounded
        """Gets an owner, the rules that it would assert and their bytes; raises ``Refused`` to refuse."""
        self.relimit(limits)
        self._places: dict[str, set[int]] = {}  # of rules, and of what was a rule and is not there any more

    def relimit(self, limits: SpaceLimits) -> None:
        """Changes the limits; rules that are there stay."""
        self._limits = limits

    def check(
        self, owner: str, places: Mapping[int, Value], asserted: Sequence[tuple[int, Value]] | None
    ) -> None:
        """Raises ``Refused`` if an owner asserts too much, with its ``asserted`` rules and the rules of
        ``places``.

        None for ``asserted`` stands for all its claims. O(its rules), and O(its claims) the first time.
        """
        if owner in self.exempt:
            return
        known = self._places.get(owner)
        if known is None or asserted is None:
            known = {place for place, value in places.items() if is_rule(value)}
        else:
            known |= {handle * SECRET & ALL for handle, value in asserted if is_rule(value)}
            known &= places.keys()
        self._places[owner] = known
        rules, size = self.held(owner, places)
        self._limits.check_rules(owner, rules, size)
        self.admit(owner, rules, size)

    def __contains__(self, owner: str) -> bool:
        """True if an owner has asserted rules, which it may have retracted since."""
        return owner in self._places

    def held(self, owner: str, places: Mapping[int, Value]) -> tuple[int, int]:
        """Returns how many rules an owner asserts, and their bytes; ``places`` are its claims; O(rules)."""
        known = [places.get(place) for place in self._places.get(owner, ())]
        rules = [value for value in known if is_rule(value)]
        return len(rules), sum([_size(part) for rule in rules for part in rule.fields])

    def retain(self, owners: Container[str]) -> None:
        """Forgets all owners but these; O(owners with rules)."""
        self._places = {owner: known for owner, known in self._places.items() if owner in owners}


def _unbounded(_owner: str, _rules: int, _size: int) -> None:
    """Admits any number of rules."""


def _size(value: Value) -> int:
    return len((value if isinstance(value, str) else text_of(value)).encode(errors="surrogatepass"))


def bounds_of(limits: SpaceLimits) -> Bounds:
    """Returns what rules may derive and do within the limits of a space."""
    return Bounds(
        limits.derived_per_turn,
        limits.derived_bytes_per_turn,
        limits.derived_bytes,
        limits.derive_work,
        limits.derive_work_per_action,
        limits.rule_reads,
        round(limits.rule_window * 1_000_000),
        limits.time_rows,
    )


def is_rule(value: Value) -> TypeGuard[Record]:
    """Whether a fact is called a rule."""
    return value.__class__ is Record and value.label == "rule"


def rules_in(values: Iterable[Value]) -> bool:
    """True if a fact is a rule; O(values)."""
    for value in values:  # noqa: SIM110  any() would make a generator for each turn
        if value.__class__ is Record and value.label == "rule":
            return True
    return False


def rules_of(values: Iterable[Value]) -> list[tuple[str, str]]:
    """Names and texts of those facts that are rules of the right form."""
    return [pair for value in values if (pair := _rule(value)) is not None]


def error_of(value: Record, entries: Container[tuple[str, str]], most: int) -> Record | None:
    """Returns the error of a fact that is called a rule, unless it is one of the ``entries`` of a program.

    ``most`` is the number of entries that there may be.  O(size).
    """
    pair = _rule(value)
    if pair is None:
        return _malformed_error(value)
    if pair in entries:
        return None
    said = f"not looked at: there are {most} texts of rules already" if most else WITHOUT
    return complaint(*pair, Map(), said)


def _rule(value: Value) -> tuple[str, str] | None:
    """Name and text of a fact that is a rule."""
    if is_rule(value):
        match value:
            case Record(fields=(str(name), str(text))):
                return name, text
    return None


def _malformed_error(value: Record) -> Record:
    parts: tuple[Value, ...] = (*value.fields, None, None)
    found = unparse(value)[:80] if size_in_facts(value) < MAX_FACT else "a fact of another form"
    return complaint(parts[0], parts[1], Map(), f"a rule is rule(name, text), not {found}")
