"""Defects in leases and sessions, in conditions of turns, and in turns that are sent again."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "server.owners.leases": [
        ("lease-ends-early", "time_to_live", "return int(millis) / 1000", "return int(millis) / 1024"),
        ("lease-judged-before-its-input", "Deadlines.run", "await input_handled()", "pass"),
        ("lease-renewed-in-vain", "Deadlines._take_due", "deadline is not None and deadline > now", "False"),
        ("ended-lease-renewed", "Leases.renew", "owner not in self._running", "False"),
        ("lease-without-end-after-a-start", "Leases.recover", "self._renew(owner)", "pass"),
        ("released-lease-keeps-its-facts", "Leases.release", "self._owners.end_owners([owner])", "pass"),
        (
            "deadline-that-was-renewed-is-forgotten",
            "Deadlines._take_due",
            "heapq.heappush(self._heap, (deadline, owner))",
            "pass",
        ),
        ("ended-lease-keeps-its-facts", "Leases._expire", "self._owners.end_soon([owner])", "pass"),
        ("lease-granted-without-end", "Leases.grant", "self._renew(owner)", "pass"),
        (
            "leases-end-with-the-first",
            "Deadlines._take_due",
            "deadline is not None and deadline > now",
            "deadline is not None and deadline > now + 1.0",
        ),
        ("shorter-deadline-unheard", "Deadlines.renew", "self._changed.set()", "pass"),
    ],
    "server.spaces.sessions": [
        (
            "secret-unchecked",
            "SessionState.admits",
            "number == self.number and hmac.compare_digest(digest_of(secret), self.known.digest)",
            "number == self.number",
        ),
        (
            "grace-after-a-start-over-at-once",
            "Sessions._begin_grace",
            "self._waiting.renew(state.owner, trio.current_time() + state.grace)",
            "self._waiting.renew(state.owner, trio.current_time())",
        ),
        ("sessions-unnoted", "Sessions.note_sessions", None, "return"),
        ("resumed-session-ends", "Sessions._stop_waiting", "self._waiting.forget(state.owner)", "pass"),
        (
            "interest-stays-announced",
            "SessionState.withdraw",
            "self._space.commit(self.interests, ((RETRACT, stream),))",
            "pass",
        ),
        ("interest-of-a-former-stream", "Sessions._settle", "state.withdraw(stream)", "pass"),
        (
            "another-token-takes-over",
            "_check_successor",
            "before.bearer.holder != connection.bearer.holder",
            "False",
        ),
    ],
    "server.owners.turn_numbers": [
        ("waiting-turn-after-a-later-one", "Client.begin", "sequence <= self.sequence", "False"),
        ("skipped-turns-applied", "Client._skip", "self._epochs.extend([NOT_APPLIED] * skipped)", "pass"),
    ],
    "server.connections.dispatch": [
        (
            "turn-numbers-unchecked",
            "ClientPeer.commit_at_once",
            None,
            "self._turn(turn, self.own)\nreturn True",
        ),
    ],
    "server.turns.conditions": [
        ("conditions-unchecked", "Judgement.decide", None, "return True"),
        ("absent-counts-none", "Judgement.decide", "condition.expected.kind == ABSENT", "False"),
        ("exactly-is-at-least", "Judgement.decide", "rows.keys() != wanted", "not rows.keys() >= wanted"),
        ("unchanged-though-it-went", "Judgement._look", "came or went", "came"),
        (
            "unchanged-since-the-next-epoch",
            "Judgement._look",
            "self._seen.get(condition.number, (since, 0))",
            "self._seen.get(condition.number, (since + 1, 0))",
        ),
        ("epoch-ahead-unseen", "Judgement._look", "since > hosted.space.epoch", "False"),
    ],
}
