"""Requests over an asker that is a list: which are carried out, and what becomes of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import trio

from dataspace.errors import Closed, ProtocolError, Refused, UsageError
from dataspace.wire import packets as p
from index.values.values import Map, Value
from relay.store.errors import LogDamaged, LogFailed
from server.lane import Lane, Work
from server.sessions.peer import Peer
from server.sessions.requests import answer


class ListAsker:
    """A peer, as far as requests use it."""

    def __init__(self) -> None:
        self.asked = 0
        self.said: list[p.Packet] = []
        self.started: list[tuple[Callable[..., Awaitable[None]], tuple[object, ...]]] = []
        self.flushed = 0

    def say(self, packet: p.Packet) -> None:
        self.said.append(packet)

    @property
    def sending(self) -> ListAsker:
        return self

    @property
    def hosted(self) -> ListAsker:
        return self

    def check_not_of_log(self, _failure: LogFailed | LogDamaged) -> None:
        """Its log goes on."""

    def work(self, *, begun: bool = False) -> Work:
        return Lane().work(self)

    async def answer(self, number: int, value: Value, _work: Work) -> None:
        self.said.append(p.Answer(number, value))

    def start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        self.started.append((function, args))

    def flush(self) -> None:
        self.flushed += 1

    async def run(self) -> None:
        """Runs what was started, in order."""
        while self.started:
            function, args = self.started.pop(0)
            await function(*args)


async def double(_peer: Peer, arguments: Map) -> Value:
    await trio.lowlevel.checkpoint()
    value = arguments["value"]
    assert isinstance(value, int)
    return 2 * value


VERBS = {"double": double, "lease": double}


async def test_a_request_is_answered_by_a_task_of_its_own() -> None:
    asker = ListAsker()
    await answer(cast("Peer", asker), p.Request(1, "double", Map({"value": 4})), VERBS, 10)
    assert (asker.asked, asker.said) == (1, [])
    await asker.run()
    assert (asker.asked, asker.said, asker.flushed) == (0, [p.Answer(1, 8)], 1)


async def test_what_later_packets_rely_on_is_answered_at_once() -> None:
    asker = ListAsker()
    await answer(cast("Peer", asker), p.Request(1, "lease", Map({"value": 4})), VERBS, 10)
    assert (asker.started, asker.said) == ([], [p.Answer(1, 8)])


async def test_an_unknown_verb_is_denied_with_those_that_are_known() -> None:
    asker = ListAsker()
    await answer(cast("Peer", asker), p.Request(1, "treble", Map()), VERBS, 10)
    said = "no verb 'treble', known are double, lease"
    assert asker.said == [p.Denied(1, "unknown-verb", said)]


async def test_more_requests_at_once_than_allowed_are_denied() -> None:
    asker = ListAsker()
    for number in range(3):
        await answer(cast("Peer", asker), p.Request(number, "double", Map({"value": number})), VERBS, 2)
    assert asker.said == [p.Denied(2, "limit", "2 requests at once, the limit is limits.requests=2")]
    await asker.run()
    assert asker.said[1:] == [p.Answer(0, 0), p.Answer(1, 2)]
    assert asker.asked == 0


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (Refused("no-lease", "it has ended"), "no-lease"),
        (ProtocolError("malformed", "it has ended"), "malformed"),
        (UsageError("it has ended"), "bad-request"),
        (LogDamaged("it has ended"), LogDamaged.code),
        (Closed("it has ended"), "closing"),
    ],
)
async def test_an_error_of_a_verb_is_a_denial(raised: Exception, code: str) -> None:
    async def failing(_peer: Peer, _arguments: Map) -> Value:
        await trio.lowlevel.checkpoint()
        raise raised

    asker = ListAsker()
    await answer(cast("Peer", asker), p.Request(1, "fail", Map()), {"fail": failing}, 10)
    await asker.run()
    assert asker.said == [p.Denied(1, code, "it has ended")]
    assert asker.asked == 0
