"""Defects that only a daemon with connections has: sessions that break, lines that are cut, turns over HTTP,
and what of owners goes on after a start.
"""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "server.sessions.requests": [
        (
            "old-turn-has-the-next-epoch",
            "OldTurns._say",
            "self._peer.say(p.Accepted(sequence, (epoch,)))",
            "self._peer.say(p.Accepted(sequence, (epoch + 1,)))",
        ),
        ("lease-request-in-its-own-time", "answer", "request.verb in AT_ONCE", "False"),
    ],
    "server.owners.turn_numbers": [
        ("turn-without-effect-not-applied", "Client.epoch_of", "self._epochs[at]", "self._epochs[at] or -1"),
        (
            "skipped-turns-not-counted",
            "Client._skip",
            "skipped = sequence - self.sequence - 1",
            "skipped = 0",
        ),
        ("turns-of-a-start-forgotten", "Clients.get", "self._logged.get(name, (0, 0))", "(0, 0)"),
    ],
    "server.spaces.sessions": [
        (
            "goodbye-is-waited-for",
            "Sessions.leave",
            "connection.lost and not self._is_closing and self._may_wait(state)",
            "not self._is_closing and self._may_wait(state)",
        ),
        (
            "superseded-connection-ends-its-successor",
            "Sessions.leave",
            "state.connection is not connection",
            "False",
        ),
        ("grace-never-over", "Sessions._expire", "self._end(state)", "pass"),
        (
            "interests-outlive-their-session",
            "Sessions._end",
            "self._hosted.end_soon((state.owner, state.interests))",
            "self._hosted.end_soon((state.owner,))",
        ),
        (
            "interests-end-apart",
            "Sessions._end",
            "self._hosted.end_soon((state.owner, state.interests))",
            "self._hosted.end_owners([state.interests])\nself._hosted.end_soon([state.owner])",
        ),
        (
            "interest-announced-again",
            "SessionState.announce",
            "before is not None and same(before, pattern)",
            "False",
        ),
        ("interests-lost-at-a-start", "Sessions.recover", "{state.owner, state.interests}", "{state.owner}"),
        (
            "grace-begins-at-its-end",
            "Sessions.leave",
            "self._waiting.renew(state.owner, trio.current_time() + state.grace)",
            "self._waiting.renew(state.owner, trio.current_time())",
        ),
        (
            "session-noted-in-vain",
            "Sessions.note_sessions",
            "action[0] not in (SEND, RETRACT)",
            "action[0] == SEND",
        ),
    ],
    "server.owners.leases": [
        ("leases-forgotten-at-a-start", "Leases.recover", "owner.startswith(PREFIX)", "False"),
        ("lease-granted-is-not-new", "Leases.grant", "return fresh", "return False"),
        ("lease-of-a-turn-not-asked", "Leases.renew", "owner not in self._running", "owner in self._running"),
    ],
    "server.turns.publication": [
        ("http-number-again", "_published", "sequence > known.sequence", "sequence >= known.sequence"),
        ("http-conditions-late", "publish", "judgement.decide()", "True"),
        (
            "http-claims-add-up",
            "publish",
            "partial(hosted.publishing.claims.planning, name, replace=replace, by=by, once=once)",
            "partial(hosted.publishing.claims.planning, name, replace=replace, by=by, once=False)",
        ),
    ],
    "server.spaces.turns.claim_index": [
        (
            "http-retraction-leaves-a-claim",
            "IndexChange.settling_facts",
            "self._leave(at, [])",
            "self._leave(at, here[1:])",
        ),
        ("http-fact-claimed-again", "IndexChange.settling_facts", "not here", "True"),
        (
            "http-first-action-counts",
            "IndexChange.take_once",
            'self._last[at] = (verb, value, verb == "retract" or (before is not None and before[2]))',
            'self._last[at] = before or (verb, value, verb == "retract")',
        ),
        ("http-messages-lost", "IndexChange.take_once", "self.actions.append((SEND, value))", "pass"),
    ],
    "server.web.routes.turns": [
        ("http-conditions-unread", "turns", '"expect" in body', "False"),
        (
            "http-unchanged-since-later",
            "_expectation",
            'read_number(item, "since", path)',
            'read_number(item, "since", path) + 1',
        ),
        ("http-number-unread", "_publication", 'read_number(body, "sequence")', "1"),
    ],
}
