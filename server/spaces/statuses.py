"""What a space says of itself: the state of its rules, and the names that there are."""

from __future__ import annotations

from collections.abc import Collection

from dataspace.errors import Refused
from dataspace.kernel.derivation import RuleHost
from index.values.values import Record
from server.system import SystemSpace


def rules_status(rules: RuleHost, suspended: int) -> dict[str, object]:
    """Returns how many rules there are, ``suspended`` of them, and which one takes most time."""
    counts, (name, spent, total) = rules.statistics(), rules.costliest()
    return {
        "rules": 0 if counts is None else counts.rules,
        "rule_texts": 0 if counts is None else counts.texts - counts.failed,
        "rules_suspended": suspended,
        "rules_milliseconds": total // 1_000_000,
        "costliest_rule": name,
        "costliest_rule_milliseconds": spent // 1_000_000,
    }


class Suspensions:
    """States in the space ``system`` which rules of a space are suspended."""

    def __init__(self, name: str, rules: RuleHost, system: SystemSpace) -> None:
        self._name = name
        self._rules = rules
        self._system = system
        self._stated: dict[Record, None] = {}
        rules.on_error = self._state

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._stated)

    def _state(self) -> None:
        found: dict[Record, None] = {
            Record("suspended", self._name, name, reason): None for name, _, reason in self._rules.suspended()
        }
        self._system.state(
            [each for each in found if each not in self._stated],
            [each for each in self._stated if each not in found],
        )
        self._stated = found


def no_space(name: str, names: Collection[str]) -> Refused:
    """Returns the refusal of a name that no space has; ``names`` are the existing ones."""
    return Refused("no-space", f"no space named {name!r:.80}, there is {', '.join(map(repr, names))}")
