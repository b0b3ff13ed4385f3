"""Defects in groups: what is handed out to whom, what may be reported done, and what a log says of it."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

OF_THE_CORE: Final[Rows] = {
    "relay.groups.core": [
        (
            "done-by-another-member",
            "GroupCore._may_be_done",
            "item.token == token and principal in (None, delivery.member.principal)",
            "item.token == token",
        ),
        (
            "done-late-by-another-member",
            "GroupCore._may_be_done",
            "item.given == token and principal in (None, item.holder)",
            "item.given == token",
        ),
        (
            "done-before-it-is-handed-out",
            "GroupCore._may_be_done",
            "if item is None:\n    return token < self._first and self._handed_before(at)",
            "if item is None:\n    return True",
        ),
        ("done-out-of-order", "GroupCore.judge", "not lost and self._key_at is not None", "False"),
        ("done-twice-in-a-turn", "GroupCore.judge", "len({at for at, _ in cells}) < len(cells)", "False"),
        (
            "done-in-order-up-to-the-first",
            "GroupCore._check_first",
            "missing = missing or item",
            "return",
        ),
        ("key-at-two-members", "GroupCore._is_next", "queue.out and queue.member is not member", "False"),
        (
            "ended-fact-handed-out",
            "GroupCore._is_ready",
            "item.is_message or self._holds(item.value)",
            "True",
        ),
        ("attempts-without-end", "GroupCore.fails", "0 < self.options.attempts <= item.attempts", "False"),
        ("attempt-not-counted", "GroupCore.fails", "item.attempts += 1", "pass"),
        ("member-waits-after-giving-back", "GroupCore.give_back", "self._stand(member)", "pass"),
        ("member-waits-after-a-job", "GroupCore.finished", "self._stand(member)", "pass"),
        (
            "last-attempt-in-company",
            "GroupCore._next",
            "self._is_last(item) and member.out",
            "False",
        ),
        (
            "adopted-from-this-term",
            "GroupCore.adopt",
            "item is None or item.token or not self.state.least <= token < self._first or item.is_parked",
            "item is None or item.token or item.is_parked",
        ),
        (
            "adopted-from-a-key-of-another-member",
            "GroupCore._is_next_of_key",
            "not queue.out or queue.member is member",
            "True",
        ),
        ("taken-over-without-its-jobs", "GroupCore.join", "delivery.member = member", "pass"),
        (
            "whole-prefetch-blamed",
            "GroupCore.leave",
            "blame and (delivery.is_taken or not is_next_failed)",
            "blame",
        ),
        ("adopted-beside-the-one", "GroupCore.adopt", "len(self.out) > len(member.out)", "False"),
        ("rate-of-a-batch", "GroupCore.assign", "self._bucket.take(now)", "pass"),
        ("bound-of-the-last-look", "GroupCore.assign", "bound.note(member)", "pass"),
    ],
    "relay.groups.items": [
        ("fact-that-came-again-twice", "GroupItems.enter", "self._pass_over(earlier)", "pass"),
        ("postponed-at-once", "GroupItems.come_due", "self._postponed[0][0] <= wall", "True"),
        ("key-of-its-first-level", "GroupItems._level_of", "self._keys[item.key].level", "item.level"),
        (
            "parked-fact-that-came-again-twice",
            "GroupItems.enter",
            "self._parked.get(digest_of(item.value))",
            "None",
        ),
        ("parked-without-its-digest", "GroupItems.park", "self._parked[digest] = item", "pass"),
        ("parked-beyond-the-log", "GroupItems.may_park", "item.at[0] > self.state.saved", "True"),
        ("parked-after-a-start-twice", "GroupItems._enter_parked", "self._pass_over(earlier)", "pass"),
    ],
    "relay.groups.ready": [
        (
            "given-back-to-the-end",
            "ReadyItems.add",
            "not self._fresh or self._fresh[-1][0] < item.at",
            "True",
        ),
        ("level-without-a-bound", "ReadyItems.pop", "self._turn >= TURNS - 1", "False"),
    ],
    "relay.groups.allowance": [
        ("share-of-the-silent", "Bound.__init__", "each.is_standing", "True"),
        ("share-of-all-at-once", "Bound.allows", "mine < self._level", "True"),
        ("out-of-those-that-left", "Bound.allows", "out < self._most", "True"),
        (
            "two-at-a-time",
            "Bound.allows",
            "member is not self._active or out > mine",
            "member is not self._active",
        ),
        (
            "bucket-without-a-bound",
            "TokenBucket.has",
            "min(self._most, self._left + (now - self._at) * self.rate)",
            "self._left + (now - self._at) * self.rate",
        ),
    ],
    "relay.groups.keys": [
        ("key-goes-on-after-a-failure", "KeyQueue.take_back", "later.append(back)", "pass"),
        (
            "given-back-behind-its-key",
            "KeyQueue._wait_first",
            "self.waiting.move_to_end(item.at, last=False)",
            "pass",
        ),
    ],
    "relay.groups.state": [
        ("done-before-it-was-read-is-lost", "GroupState.done", "self.above.add(at)", "pass"),
        ("attempts-lost-at-a-start", "GroupState.take", "item.attempts, item.due = failed", "pass"),
        ("checkpoint-without-what-is-above", "GroupState.checkpoint", "sorted(self.above)", "()"),
        ("log-kept-for-no-group", "GroupStates.needs_after", None, "return None"),
        ("done-notes-shifted", "done_fields", "epoch - before", "epoch"),
        ("dead-for-good", "GroupState.revive", "each.at not in self.undone", "False"),
        ("parked-lost-at-a-start", "GroupStates.rows", "group.parked", "()"),
        (
            "log-not-kept-for-parked",
            "GroupStates.needs_after",
            "[group.saved for group in groups] + parked",
            "[group.saved for group in groups]",
        ),
        (
            "postponement-unread",
            "GroupState.postpone",
            "item.attempts, item.due = attempts, due",
            "item.attempts = attempts",
        ),
    ],
}
"""What hands out jobs, and what a log says of them: in memory, without a daemon."""

ROWS: Final[Rows] = {
    "server.groups.space.feeding": [
        ("message-taken-for-a-fact", "Feeding._offers", "position >= len(added)", "position > len(added)"),
        (
            "rows-in-another-order",
            "Feeding._offers",
            "enumerate([*added, *messages])",
            "enumerate([*messages, *added])",
        ),
        (
            "rows-counted-from-one",
            "Feeding._offers",
            "enumerate([*added, *messages])",
            "enumerate([*added, *messages], 1)",
        ),
        (
            "endings-counted-from-the-facts",
            "Feeding._offers",
            "enumerate(removed, len(added) + len(messages))",
            "enumerate(removed, len(added))",
        ),
        ("full-group-misses-a-row", "Feeding._takes", "self._has_fallen_behind(group, at)", "pass"),
        (
            "row-taken-twice",
            "Feeding._takes",
            "not state.is_live or at <= state.read or group.matches(value) is None",
            "group.matches(value) is None",
        ),
    ],
    "server.groups.space.settling": [
        ("done-unnoted", "SettledGroups.notes", None, "return []"),
        ("credit-of-done-jobs-lost", "SettledGroups.settled", "self._finish(each.group, each.items)", "pass"),
        (
            "late-jobs-stay-out",
            "SettledGroups._expire",
            'self._fail(group, delivery, reason="expired")',
            "pass",
        ),
        (
            "failed-jobs-stay-out",
            "SettledGroups._fail",
            "later = core.give_back(delivery, due=due)",
            "later = []",
        ),
        (
            "jobs-judged-one-by-one",
            "SettledGroups.judge",
            "if lost:\n    raise _lost(name, lost)",
            "cells = [each for each in cells if each[0] not in lost]",
        ),
        ("lost-jobs-done", "SettledGroups.judge", "if lost:\n    raise _lost(name, lost)", "pass"),
        (
            "untaken-jobs-stay-with-a-quiet-member",
            "SettledGroups._takes_back",
            "self.revoke([untaken, *group.core.give_back(untaken)])",
            "self.revoke([untaken])",
        ),
    ],
    "server.groups.space.dead": [
        (
            "dead-letter-is-undone",
            "bury",
            "hosted.commit(owner, [(ASSERT, hosted.space.fresh_handle(owner), fact)], notes=[note])",
            "hosted.commit(owner, [(ASSERT, hosted.space.fresh_handle(owner), fact)])",
        ),
        ("dead-letter-is-still-out", "bury", "group.core.finished(item)", "pass"),
        (
            "retried-letter-unnoted",
            "retrying",
            "hosted.commit(owner, [(RETRACT, handle) for handle, _ in some], notes=[note])",
            "hosted.commit(owner, [(RETRACT, handle) for handle, _ in some])",
        ),
        (
            "retried-letter-is-not-undone",
            "retrying",
            "group.enter_again([each.at for each in again])",
            "pass",
        ),
    ],
    "server.groups.space.reading": [
        ("read-one-epoch-late", "_portion", "return found, max(after, number - 1)", "return found, number"),
        (
            "read-beyond-the-group",
            "_portion",
            "(number, position) > read and group.matches(value) is not None",
            "group.matches(value) is not None",
        ),
        ("read-messages-are-facts", "_portion", "position >= len(added)", "False"),
        ("live-before-the-end", "_read_on", "group.pending_to >= durable", "True"),
        ("pending-items-lost", "take_pending", "not group.is_full", "False"),
        ("read-endings-are-messages", "_portion", "position >= endings", "False"),
    ],
    "server.groups.space.groups": [
        ("handed-out-twice", "SpaceGroups._join", "core.give_back(delivery)", "pass"),
        (
            "ended-session-keeps-its-jobs",
            "SpaceGroups._end_session",
            "self.leave(group, member, blame=blame)",
            "pass",
        ),
    ],
    "server.groups.space.placing": [
        (
            "behind-by-one-row",
            "FedGroups.fall_behind",
            "state.read = max(state.read, (at[0], at[1] - 1) if at[1] else (at[0] - 1, END))",
            "state.read = max(state.read, at)",
        ),
    ],
}
