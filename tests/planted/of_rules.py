"""Defects in rules: joins, cycles, aggregates, claims on derived facts, ``next``, and over time."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "dataspace.rules.relations.derived_relations": [
        (
            "claimed-fact-is-derived-too",
            "HeadRelation.publish",
            "state[2] and (not state[3]) and not (base and state[4] in base)",
            "state[2] and not state[3]",
        ),
        (
            "claim-ends-and-nothing-follows",
            "HeadRelation._publish_noted",
            "derived.added.append(state[5])",
            "pass",
        ),
        (
            "claim-begins-and-it-follows-still",
            "HeadRelation._publish_noted",
            "derived.removed.append(state[5])",
            "pass",
        ),
        ("next-holds-for-good", "HeadRelation.delay", "-1 if row in held else +1", "+1"),
        ("next-is-never-due", "HeadRelation.is_due", None, "return False"),
    ],
    "dataspace.rules.relations.relations": [
        ("derivations-merged", "Relation.support", "state[0] += by", "state[0] = by"),
        ("claims-merged", "Relation.note", "self.base[row] = before + by", "self.base[row] = 1"),
        ("old-rows-not-filed", "Relation.fill", "state[2] > 0", "False"),
    ],
    "dataspace.rules.engine.compiling": [
        (
            "cycle-supports-itself",
            "_Text._older",
            None,
            "return 'k[2]'",
        ),
        ("self-join-counts-twice", "_Text._is_skipped", None, "return False"),
    ],
    "dataspace.rules.relations.base_facts": [
        ("late-rule-reads-nothing", "BaseFacts.share", "take(value, +1)", "pass"),
        ("late-index-is-empty", "BaseFacts.attach", "view.fill()", "pass"),
    ],
    "dataspace.rules.relations.grouping": [
        ("sum-only-grows", "Sum.change", "self._whole += by * number", "self._whole += number"),
        ("mean-of-all-so-far", "Sum.change", "self._count += by", "self._count += 1"),
        ("extreme-stays", "_Counted._count", "del self._entries[at]", "pass"),
        ("collected-once", "Collection.value", "range(count)", "range(1)"),
        ("top-takes-too-many", "Best.value", "min(count, self._n - len(best))", "count"),
        ("distinct-counts-all", "Distinct.change", "not (before and now)", "True"),
        ("distinct-is-remembered", "Distinct.change", "del self._counts[term]", "pass"),
    ],
    "dataspace.rules.relations.times": [
        ("ended-row-is-looked-at-once", "Times._look_at", "self.plan(form, row, until)", "pass"),
        ("ended-row-stays", "Times._look_at", "until <= self.now", "until < self.now"),
        (
            "final-window-late",
            "Times.shows",
            "form.ends(until - form.of.span) <= self.now",
            "form.ends(until - form.of.span) < self.now",
        ),
        ("past-of-rules-that-went", "Times.keep", "self.drop(self.forms, at)", "pass"),
        ("second-window-hears-nothing", "Times.form", "self._hearing = None", "pass"),
        ("undone-past-stays", "Times.undo", "table.pop(at, None)", "pass"),
        ("undone-past-is-lost", "Times.undo", "table[at] = value", "pass"),
        ("time-rounded-up", "Times.begin", "self.ahead // GRID * GRID", "-(-self.ahead // GRID) * GRID"),
        ("past-forgets-since", "Times._load", "self.put(form.since, row, since)", "pass"),
        ("past-forgets-ended-stays", "Times._past_of", "since < until - span", "False"),
    ],
    "dataspace.rules.relations.timing": [
        (
            "message-hides-an-equal-fact",
            "Timing._row",
            "times.is_hearing and row in form.heard and row not in self._shown",
            "row in form.heard and row not in self._shown",
        ),
        (
            "held-for-longer",
            "Timing._row",
            "since + form.of.span <= times.now",
            "since + form.of.span < times.now",
        ),
        ("begun-when-looked-at", "Timing._row", "times.time if since is None else since", "times.time"),
        ("stay-is-shown-again", "Timing._end", "self._shown.pop(row, None)", "pass"),
        ("held-before-it-came-back", "Timing._conclude", "times.drop(form.since, row)", "pass"),
        ("now-ends-late", "Timing._row", "begins <= times.now < ends", "begins <= times.now <= ends"),
        ("stay-ends-with-its-fact", "Timing._end", "times.end(form, ended, times.time)", "pass"),
    ],
    "dataspace.rules.relations.hearing": [
        ("equal-messages-merged", "Hearing.hear", "not self._is_alone", "True"),
        ("heard-unnoted", "Hearing._begin", "times.has_heard = True", "pass"),
    ],
    "dataspace.rules.relations.past_rows": [
        ("before-now-inclusive", "bounds_of", "micros + (operator == '<')", "micros"),
        ("window-begins-with-its-row", "PastRows.begins", "time // of.window * of.window", "time"),
        (
            "window-is-looked-at-once",
            "PastRows.instants",
            "return instant_of(self.ends(self.begins(time))), last",
            "return (last,)",
        ),
    ],
    "dataspace.rules.engine.rebuilding": [
        (
            "start-forgets-messages",
            "rebuild",
            "program.declare_and_tick((_texts(added), _texts(removed)), added, removed, messages)",
            "program.declare_and_tick((_texts(added), _texts(removed)), added, removed, ())",
        ),
        ("start-keeps-ended-facts", "rebuild", "present.pop(key(value), None)", "pass"),
        ("start-begins-windows-anew", "rebuild", "times.forget_final()", "pass"),
    ],
}
