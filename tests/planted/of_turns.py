"""Defects in turns: claims, what is shown of them, how a turn is undone, and how it is followed elsewhere."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "dataspace.kernel.turns": [
        (
            "handle-in-use-unseen",
            "take",
            "if place in places:\n    raise _in_use(handle, places[place])",
            "pass",
        ),
        ("refused-turn-keeps-claims", "take_back", "places.pop(place, None)", "pass"),
        (
            "refused-turn-ends-claims",
            "take_back",
            "before.setdefault(action[1] * SECRET & ALL, removed[ended])",
            "pass",
        ),
        ("handle-begun-again-ends", "take", "retracted.pop(handle, None)", "pass"),
        ("message-twice", "take", "messages.append(message)", "messages.extend((message, message))"),
        (
            "messages-of-further-owners-lost",
            "SeveralOwners._join",
            "whole.messages += draft.messages",
            "pass",
        ),
    ],
    "dataspace.kernel.space": [
        ("ended-owner-keeps-claims", "Space.end", "del self._claims[owner]", "pass"),
        (
            "undone-end-loses-claims",
            "Space.end",
            "self._restore(lambda: self._claims.update(ending), draft, was)",
            "self._restore(lambda: None, draft, was)",
        ),
        (
            "undone-turn-keeps-its-number",
            "Space._restore",
            "self.epoch, self.time, self._claimed, self.facts_bytes, _ = was",
            "_, self.time, self._claimed, self.facts_bytes, _ = was",
        ),
        (
            "undone-turn-forgets-derived-facts",
            "Space._restore",
            "self.index.reset([*claimed, *derived])",
            "self.index.reset(claimed)",
        ),
        ("undone-turn-is-shown", "Space._restore", "self._forget_news()", "pass"),
        ("time-goes-back", "Space._apply", "if now > self.time:\n    self.time = now", "self.time = now"),
        (
            "only-messages-are-silent",
            "Space._apply",
            "not (added or removed or messages)",
            "not (added or removed)",
        ),
        (
            "instants-skipped",
            "Space._make_due",
            "(instant := rules.due) <= now",
            "(instant := rules.due) < now",
        ),
        ("instant-late", "Space._make_timed", "self._making(instant)", "self._making(instant + 10_000)"),
    ],
    "dataspace.kernel.derivation": [
        ("shared-fact-vanishes", "RuleHost._transitions", "claimed(at) == 1", "claimed(at) >= 1"),
        ("shared-fact-comes-again", "RuleHost._transitions", "not claimed(at)", "True"),
        (
            "derived-fact-is-claimed",
            "RuleHost._claimed_at",
            "count - 1 if count and at in self.held and at not in self._by_flows else count",
            "count",
        ),
        ("derived-fact-is-claimed-alone", "RuleHost.turn", "claims -= 1", "pass"),
        (
            "new-rule-reads-what-goes",
            "RuleHost._facts",
            "at not in vanishing and (others_only or self._claimed_at(at))",
            "others_only or self._claimed_at(at)",
        ),
        ("new-rule-misses-what-comes", "RuleHost._facts", "yield from self._appearing", "pass"),
        ("new-rule-reads-derived-facts", "RuleHost._facts", "others_only or self._claimed_at(at)", "True"),
        ("handles-of-rules-again", "RuleHost._claim", "self._last += len(added)", "pass"),
        (
            "handles-of-rules-after-a-start",
            "RuleHost.adopt",
            "self._last = max(claims, default=0)",
            "self._last = 0",
        ),
        ("undone-turn-keeps-what-followed", "RuleHost.undo", "del held[at]", "pass"),
        (
            "undone-turn-loses-what-followed",
            "RuleHost.undo",
            "held.update([(at, handle) for at, handle in journal.ended if handle <= journal.last])",
            "pass",
        ),
        (
            "next-lost-at-a-start",
            "RuleHost._take_up",
            "self._kept = [value(at) for at in self.held]",
            "self._kept = []",
        ),
    ],
    "dataspace.kernel.state": [
        (
            "followed-handle-begins-twice",
            "SpaceState._follow_owner",
            "ended.append(held.pop(handle))",
            "held.pop(handle)",
        ),
        ("followed-handle-ends-late", "SpaceState._follow_owner", "begun.pop(handle, None)", "pass"),
        (
            "observers-told-of-the-epoch-before",
            "SpaceState._tell",
            "number, time, touched = self.epoch, self.time, self._touched",
            "number, time, touched = self.epoch - 1, self.time, self._touched",
        ),
    ],
    "dataspace.kernel.interests": [
        ("second-message-lost", "Interest.notice", "self._messages.append(captures)", "pass"),
        (
            "second-removal-first",
            "Interest.notice",
            "self._removed.append(captures)",
            "self._removed[0] = captures",
        ),
    ],
}
