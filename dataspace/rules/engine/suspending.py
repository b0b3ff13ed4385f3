"""Suspending: the texts whose past takes too much, or cannot be kept.

These choices are apart from the program, which makes the ticks: here no engine is touched.

Always: a text is suspended by the name of a rule of it, before the tick that its past is too much for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from dataspace.rules.engine.components import Components, PlacedRule
from dataspace.rules.engine.engine import ComponentEngine
from dataspace.rules.engine.texts import Texts
from dataspace.rules.relations.budgets import Bounds
from dataspace.rules.relations.failures import message_of
from dataspace.rules.relations.times import Times
from index.values.positions import class_of
from index.values.values import Value, key


class PastBounds:
    """Bounds the past of the rules that some components carry out."""

    def __init__(
        self, components: Components[ComponentEngine], texts: Texts, times: Times, bounds: Bounds
    ) -> None:
        self._components = components
        self._texts = texts
        self._times = times
        self._bounds = bounds

    def suspend_listeners(self, messages: Sequence[Value]) -> list[PlacedRule]:
        """Suspends the texts whose windows read most messages of a turn, until others may read them.

        A window reads each message of its class before any rule does work for it.  Returns the rules of the
        texts.  O(1) if there are few messages.
        """
        bounds, forms = self._bounds, self._times.forms
        most = bounds.work_per_action * len(messages)
        if bounds.work is None or len(messages) * len(forms) <= (most := most + bounds.work):
            return []
        counts = Counter(map(class_of, messages))
        readings = dict[int, int]()
        for placed_rule in self._timed():
            form = forms.get(key(placed_rule.rule.head.label))
            if form is not None and form.reader is not None:
                read = len(messages) if form.root is None else counts[form.root]
                first = self._texts.entry_of(placed_rule.number).placed[0].number
                readings[first] = readings.get(first, 0) + read
        total = left = sum(readings.values())
        lost: list[PlacedRule] = []
        for read, number in sorted([(read, number) for number, read in readings.items()], reverse=True):
            if left > most:
                limits = f"derive_work={bounds.work}, derive_work_per_action={bounds.work_per_action}"
                reason = f"its windows read {read} messages of one turn, and those of all rules {total}"
                lost += self._texts.suspend(
                    number, f"{reason}; send fewer in a turn, or raise limits {limits}"
                )
                left -= read
        return lost

    def suspend_heaviest(self, messages: Sequence[Value]) -> list[PlacedRule]:
        """Suspends the texts that keep most rows of the past, until the others may; returns their rules.

        The rows that messages will bring count as well.
        """
        times, most, held = self._times, self._bounds.time_rows, self._bounds.held
        lost = list[PlacedRule]()
        if times.rows + len(messages) * len(times.forms) > most:
            limit = f"shorten what it looks back for, or raise limits.time_rows={most}"
            lost += self._suspend(times.sizes(messages), most, "rows", limit)
        if times.value_bytes > held:
            sizes = {at: form.value_bytes for at, form in times.forms.items()}
            limit = f"shorten what it looks back for, or raise limits.derived_bytes={held}"
            lost += self._suspend(sizes, held, "bytes", limit)
        return lost

    def _suspend(self, sizes: dict[Hashable, int], most: int, unit: str, limit: str) -> list[PlacedRule]:
        """Suspends the texts whose forms have the largest sizes, until no more than ``most`` are left."""
        lost = list[PlacedRule]()
        numbers = {key(each.rule.head.label): each.number for each in self._timed()}
        while (total := sum(sizes.values())) > most and sizes:
            at, size = max(sizes.items(), key=lambda pair: pair[1])
            reason = f"{size} {unit} of the past are kept for it, of {total}"
            if at in numbers:
                lost += self._texts.suspend(numbers[at], f"{reason}: {limit}")
            gone = {key(each.rule.head.label) for each in lost}
            sizes = {each: size for each, size in sizes.items() if each != at and each not in gone}
        self._times.keep(
            [rule.rule.head.label for rule in self._timed() if key(rule.rule.head.label) in sizes]
        )
        return lost

    def suspend_failed(self) -> list[PlacedRule]:
        """Suspends the texts whose past cannot be kept because of a defect; returns their rules."""
        errors, lost = self._times.give_up_failed(), list[PlacedRule]()
        for placed_rule in self._timed():
            error = errors.get(key(placed_rule.rule.head.label))
            if error is not None and self._texts.is_sound(placed_rule):
                self._texts.entry_of(placed_rule.number).has_defect = True
                reason = f"its past cannot be kept, which is a defect: {message_of(error)}"
                lost += self._texts.suspend(placed_rule.number, reason)
        return lost

    def keep(self) -> None:
        """Forgets the past of rules that are not carried out any more."""
        self._times.keep([each.rule.head.label for each in self._timed()])

    def _timed(self) -> list[PlacedRule]:
        """Returns the rules whose rows depend on time."""
        rules = [each for engine in self._components for each in engine.rules]
        return [each for each in rules if each.rule.form is not None]
