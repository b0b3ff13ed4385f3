"""Deriving: owners whose turns, rules and conditions are drawn from the tables of ``tests/generated``.

Facts and messages are few, so that those of several owners meet, and rules derive from them, from time, and
from what other rules derive.

Always: as ``actors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import trio

import dataspace
from dataspace import absent, exactly, unchanged
from dataspace.errors import Refused
from index.values.values import Record
from tests.generated.programs import PROFILES
from tests.generated.texts import fact, pattern, text
from tests.simulation.actors import OF_THE_DISK, Actor

RULE: Final = "rule"

DRAWN: Final = [each for each in PROFILES if "next" not in each.kinds and not each.crowd]
"""What ``next`` asks for comes in between other turns: when, the model does not say."""


async def derive(actor: Actor) -> None:
    """Some turns; what is refused is forgotten."""
    random, owner = actor.random, f"deriver{actor.part.rank}"
    profile = actor.world.random(f"profile {actor.part.space}").choice(DRAWN)
    drawing = _Drawing(random, profile.labels, [text(random, profile.kinds) for _ in range(3)])
    async with actor.connected(owner=owner) as space:
        for _ in range(random.randint(5, 14)):
            before = list(drawing.held), dict(drawing.rules)
            draft = space.draft(expect=drawing.conditions() if random.random() < 0.2 else ())
            drawing.fill(draft)
            after = actor.world.last[actor.part.space]
            ticket = await space.submit(draft)
            await actor.note(f"owner:{owner}", ticket, after)
            try:
                drawing.epoch = await ticket.wait()
            except Refused as refusal:
                if refusal.code not in (*OF_THE_DISK, "epoch-lost", "expectation"):
                    raise
                drawing.held, drawing.rules = before
            await trio.sleep(random.choice((0.0, 0.003, 0.012, 0.04, 0.3)))


class _Drawing:
    """What one owner has, and what its turns are drawn from."""

    def __init__(self, random: Random, labels: Sequence[str], texts: Sequence[str]) -> None:
        self.random = random
        self.labels = labels
        self.texts = texts
        self.held: list[dataspace.Claim] = []
        self.rules: dict[str, dataspace.Claim] = {}
        self.epoch = 0

    def conditions(self) -> list[dataspace.Expectation]:
        """Returns what a turn expects, of which some holds."""
        wanted = pattern(self.random, self.labels)
        match self.random.randrange(3):
            case 0:
                return [absent(wanted)]
            case 1:
                return [exactly(wanted, [])]
        return [unchanged(wanted, since=self.epoch)] if self.epoch else []

    def fill(self, draft: dataspace.Draft) -> None:
        """Puts actions into a turn."""
        random = self.random
        if random.random() < 0.3 or not self.rules:
            chosen = random.choice(self.texts)
            if chosen in self.rules:
                draft.retract(self.rules.pop(chosen))
            else:
                self.rules[chosen] = draft.assert_(Record(RULE, f"r{self.texts.index(chosen)}", chosen))
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            match random.choice(("assert", "assert", "retract", "send", "replace")):
                case "retract" if self.held:
                    draft.retract(self.held.pop(random.randrange(len(self.held))))
                case "replace" if self.held:
                    old = self.held.pop(random.randrange(len(self.held)))
                    self.held.append(draft.replace(old, self._fact()))
                case "send":
                    draft.send(self._fact())
                case _:
                    self.held.append(draft.assert_(self._fact()))

    def _fact(self) -> Record:
        drawn = fact(self.random, self.labels)
        assert isinstance(drawn, Record)  # as all of these labels
        return drawn
