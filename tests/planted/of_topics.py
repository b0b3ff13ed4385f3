"""Defects in durable topics: what their steps complete, what a start restores, what subscribers are shown."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

OF_STEPS: Final[Rows] = {
    "relay.topics.steps": [
        ("topic-number-skipped", "StepLog._complete", "self.completed += 1", "self.completed += 2"),
        (
            "vanished-producer-unnamed",
            "StepLog._hear",
            'each.crashed = each.crashed or (reason if lost.less_equal(time) else "")',
            "pass",
        ),
        ("step-uncounted", "StepLog._count", "member.steps += 1", "pass"),
        (
            "steps-after-a-leave-uncounted",
            "StepLog.leave",
            "self.departed[member.name] = member.steps",
            "pass",
        ),
        (
            "steps-uncounted-at-a-start",
            "StepLog.load",
            "Member(name, away, steps, dict(sent[0]) if sent else {})",
            "Member(name, away, 0, dict(sent[0]) if sent else {})",
        ),
        (
            "open-epochs-lost-at-a-start",
            "StepLog.load",
            "self._open = {time: _Open(*each) for time, *each in opened}",
            "self._open = {}",
        ),
        (
            "step-on-disk-too-soon",
            "StepLog.written",
            "self.durable = position",
            "self.durable = self.position",
        ),
        ("tail-one-late", "StepLog.tail", "each.position > after", "each.position > after + 1"),
        (
            "epoch-begins-with-its-last-step",
            "StepLog._add",
            "epoch.last = self.position",
            "epoch.first = epoch.last = self.position",
        ),
        (
            "settling-epoch-not-needed",
            "StepLog.begun_at_or_after",
            "begun += [each.first for _, each in self._settling if since.less_equal(each.time)]",
            "pass",
        ),
        (
            "numbers-begin-anew-at-a-start",
            "StepLog.load",
            "self.position, self.completed, self.oldest, self.size = counts",
            "self.position, _, self.oldest, self.size = counts",
        ),
    ],
    "relay.topics.topic": [
        ("partition-ends-with-its-producer", "Publisher._taken_over", None, "return []"),
        (
            "vanished-producer-holds-back",
            "Publisher.crash",
            "changes = self._lower.change([*gone, *self._taken_over(held)])",
            "changes = self._lower.change([])",
        ),
        (
            "crash-untold",
            "Publisher.crash",
            "self._broadcast(Crashed(self.partition, tuple(since), epochs, reason, tuple(changes)))",
            "self._broadcast(Progress(self.partition, tuple(changes)))",
        ),
        (
            "parked-times-stay",
            "Publisher.join",
            "self._opened, self._parked = True, ()",
            "self._opened = True",
        ),
        (
            "leaving-keeps-its-times",
            "Publisher.leave",
            "self._move([*[(time, -count) for time, count in held], *self._taken_over(held)])",
            "pass",
        ),
    ],
    "relay.topics.feed": [
        ("progress-in-the-past-again", "CatchUp._progress", "self._told[partition] = after", "pass"),
        (
            "last-step-of-the-past-again",
            "CatchUp.replay",
            "self.at = step.position",
            "self.at = step.position - 1",
        ),
        ("past-without-its-end", "CatchUp.finish", "self.replay(tail)", "pass"),
        ("past-before-what-was-asked", "CatchUp._take", "self.since.less_equal(time)", "True"),
    ],
}
"""What the steps of a topic do, in memory, with its readers and without a daemon."""

ROWS: Final[Rows] = {
    "relay.topics.topic": [
        ("empty-partition-holds-back", "Topic._settle", "each.follow(others)", "pass"),
    ],
    "relay.topics.feed": [
        ("subscriber-before-the-disk", "Feed.take", "self._waiting[0][0] <= durable", "True"),
        (
            "merged-progress-forgets-the-first",
            "_merged",
            "ChangeBatch([*a.changes, *b.changes])",
            "ChangeBatch(b.changes)",
        ),
        (
            "crash-in-the-past-untold",
            "CatchUp._take",
            "self._tell(Crashed(partition, lost, (), reason, ()))",
            "pass",
        ),
        ("frontiers-of-the-past-untold", "CatchUp.finish", "self._catch_up(self.step_log.lowers())", "pass"),
    ],
    "relay.journal.writer": [
        ("steps-answered-before-the-write", "TopicWriter.when_durable", None, "callback()"),
    ],
}
