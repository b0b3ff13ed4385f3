"""One client's rubbish ends its own session with a clear goodbye, and nothing else.

Every test has a good client beside the bad one (the fixture ``bystander``): it must be served as before on
the same connection, and the daemon must log neither a warning nor a traceback.
"""

from __future__ import annotations

import gc
import logging
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings, strategies as st

import dataspace
from dataspace import Record, Refused
from dataspace.codec import MAX_ELEMENTS, pack
from dataspace.errors import ProtocolError
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.limits import SpaceLimits
from dataspace.transport.sockets import SocketLink
from dataspace.version import compiled_parts
from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from dataspace.wire.frames import MAX_FRAME, frame
from index.values.values import Map, Value
from relay.delivery.queue_members import QueueMember
from relay.log.writer import GroupCommit
from server.config.model import Config, Limits
from server.connections.connection import Connection
from server.connections.dispatch import ClientPeer
from server.daemon.serve import serve
from tests.server.peers import Peer, fact, hello, opening, packed, turn
from tests.strategies import values

Space = dataspace.RemoteSpace


def _nested(levels: int) -> Value:
    value: Value = 1
    for _ in range(levels):
        value = (value,)
    return value


def _nested_records(levels: int) -> Value:
    value: Value = 1
    for _ in range(levels):
        value = Record("r", value)
    return value


STRANGERS = {
    "no msgpack": (frame(b"\xc1"), "malformed", "no value in 1 bytes"),
    "an empty frame": (frame(b""), "malformed", "no value in 0 bytes"),
    "bytes after the value": (frame(pack((7, 1)) + b"\x00"), "malformed", "no value in"),
    "no packet": (frame(pack("hello")), "malformed", "a packet is an array"),
    "an unknown packet": (frame(pack((32, 1))), "unknown-packet", "packet 32"),
    "a turn before hello": (packed(turn(1)), "unexpected", "Turn while waiting for hello"),
    "what only a daemon says": (packed(p.Done(1)), "unexpected", "Done while waiting for hello"),
    "a wrong field": (frame(pack((1, 1, 5, "", {}))), "malformed", "Hello.client must be text"),
    "fields that are missing": (frame(pack((1, 1))), "malformed", "Hello has 4 fields, got 1"),
    "an empty name": (packed(hello("")), "malformed", "Hello.client must not be empty"),
    "another version": (packed(hello(version=2)), "version", "spoken 1 to 1, got 2"),
    "a huge length": (b"\xff\xff\xff\xff", "limit", "frame of 4294967295 bytes, limit 16384"),
    "a length for those who said hello": (b"\x00\x00\x40\x01", "limit", "frame of 16385 bytes, limit 16384"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "limit", "looks like an HTTP request"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "limit", "looks like a TLS hello"),
    "SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", "limit", "looks like an SSH banner"),
    "a lot that nobody reads": (b"\xff" * (1 << 20), "limit", "frame of 4294967295 bytes"),
}


@pytest.mark.parametrize("what", STRANGERS)
async def test_a_stranger_is_told_what_was_wrong(url: str, bystander: Space, what: str) -> None:
    data, code, text = STRANGERS[what]
    with trio.fail_after(10):
        async with Peer(url) as peer:
            await peer.shout(data)
            heard = await peer.rest()
    assert [(type(each), each[0]) for each in heard] == [(p.Bye, code)]
    assert text in str(heard[0])


ACQUAINTANCES = {
    "no msgpack": (frame(b"\xc1"), "malformed", "no value in 1 bytes"),
    "hello again": (packed(hello()), "unexpected", "Hello while talking"),
    "what only a daemon says": (packed(p.Accepted(1, (1,))), "unexpected", "Accepted while talking"),
    "an unknown packet": (frame(pack((99,))), "unknown-packet", "packet 99"),
    "a huge length": (b"\x7f\xff\xff\xff", "limit", f"frame of 2147483647 bytes, limit {MAX_FRAME}"),
    "deep nesting of arrays": (frame(b"\x91" * 100_000 + b"\x00"), "limit", "nested deeper than"),
    "deep nesting in few bytes": (frame(b"\x91" * 100 + b"\x00"), "limit", "nested deeper than"),
    "deep nesting of records": (
        packed(turn(2, (SEND, _nested_records(62)))),
        "limit",
        "nested deeper than",
    ),
    "too many elements": (
        frame(pack((6, 1, "sync", {"x": [0] * MAX_ELEMENTS}))),
        "limit",
        f"elements, limit {MAX_ELEMENTS}",
    ),
    "an array that declares too many": (frame(b"\xdd\xff\xff\xff\xff"), "malformed", "no value in 5 bytes"),
    "a flood of frames of one byte": (frame(b"\x07") * 200_000, "malformed", "a packet is an array"),
    "an abort of no stream": (packed(p.Abort(1, "", True)), "unexpected", "stream 1 was never opened"),
    "values for no stream": (packed(p.Values(1, 0, (1,), 0)), "unexpected", "stream 1 was never opened"),
    "values for a stream that the daemon feeds": (
        packed(opening(3)) + packed(p.Values(3, 0, (1,), 0)),
        "unexpected",
        "values for stream 3, which the daemon feeds",
    ),
    "an ask for no stream": (packed(p.Ask(1, 1, 1)), "unexpected", "stream 1 was never opened"),
    "a stream opened twice": (
        packed(opening(3)) + packed(opening(3)),
        "unexpected",
        "stream 3 opened after stream 3",
    ),
    "an action that is none": (packed(turn(2, (9, 1))), "malformed", "no action: (9, 1)"),
    "an empty action": (packed(turn(2, ())), "malformed", "no action: ()"),
    "a handle that is none": (packed(turn(2, (ASSERT, "one", 1))), "malformed", "a handle is"),
    "a handle below zero": (packed(turn(2, (ASSERT, -1, 1))), "malformed", "a handle is"),
    "an unknown extension": (frame(b"\x92\x07\xc7\x01\x09\x00"), "malformed", "extension 9"),
}


@pytest.mark.parametrize("what", ACQUAINTANCES)
async def test_a_session_that_breaks_a_rule_ends(url: str, bystander: Space, what: str) -> None:
    data, code, text = ACQUAINTANCES[what]
    with trio.fail_after(10):
        async with Peer(url) as peer:
            await peer.greet()
            await peer.say(turn(1, (ASSERT, 1, Record("mine", 1))))
            assert isinstance(await peer.hear(), p.Accepted)
            await peer.shout(data)
            bye = await peer.farewell()
        async with bystander.observe("mine($n)") as observation:  # what it owned has gone
            while (state := await observation.next_epoch()) is not None and state.added:
                pass
    assert (bye.code, text in bye.text) == (code, True), bye


async def test_what_comes_before_the_rubbish_counts_and_what_follows_does_not(
    url: str, bystander: Space
) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        sent = [packed(turn(n, (SEND, fact(n)))) for n in (1, 2)]
        async with bystander.observe("fact($n)", quiet=True) as observation:
            await observation.next_epoch()
            await peer.shout(sent[0] + frame(b"\xc1") + sent[1])
            assert (await peer.farewell()).code == "malformed"
            assert [change.n for change in await observation.next_epoch() or ()] == [1]
        assert await bystander.sync() == 2


# -- silence, resets and slowness ---------------------------------------------------------------------


async def test_a_reset_in_the_middle_of_a_frame_ends_only_that_session(url: str, bystander: Space) -> None:
    async with bystander.observe("mine($n)", quiet=True) as observation:
        await observation.next_epoch()
        for client in range(5):
            async with Peer(url) as peer:
                await peer.greet(f"~{client}")
                await peer.say(turn(1, (ASSERT, 1, Record("mine", client))))
                came = await observation.next_epoch()
                await peer.shout(packed(turn(2, (SEND, "never")))[:-3])
                peer.reset()
                went = await observation.next_epoch()
                assert came is not None and went is not None
                assert ([*came.added], [*went.removed]) == ([(client,)], [(client,)])


async def test_a_reset_before_hello_is_nothing(url: str, bystander: Space) -> None:
    for data in (b"", b"\x00", packed(hello())[:-1]):
        async with Peer(url) as peer:
            await peer.shout(data)
            peer.reset()


@pytest.mark.parametrize("limits", [Limits(hello_seconds=0.05)])
@pytest.mark.parametrize("data", [b"", b"\x00\x00", packed(hello())[:-1]])
async def test_silence_instead_of_hello_ends_at_a_deadline(url: str, bystander: Space, data: bytes) -> None:
    with trio.fail_after(10):
        async with Peer(url) as peer:
            await peer.shout(data)
            assert await peer.rest() == [p.Bye("timeout", "no hello within 0.05 s")]


@pytest.mark.parametrize("limits", [Limits(frame_seconds=0.05)])
async def test_a_frame_that_comes_byte_by_byte_ends_at_a_deadline(url: str, bystander: Space) -> None:
    async def drip(peer: Peer) -> None:
        for byte in packed(turn(1, (SEND, "x" * 100_000))):
            await peer.shout(bytes([byte]))
            await trio.sleep(0.001)

    with trio.fail_after(10):
        async with Peer(url) as peer, trio.open_nursery() as nursery:
            await peer.greet()
            nursery.start_soon(drip, peer)
            bye = await peer.farewell()
            nursery.cancel_scope.cancel()
    assert bye == p.Bye("timeout", "a frame took longer than 0.05 s")


@pytest.mark.parametrize("limits", [Limits(hello_seconds=0.1, frame_seconds=0.1)])
async def test_a_busy_peer_whose_reads_end_within_frames_meets_no_deadline(
    url: str, bystander: Space
) -> None:
    """Each frame is on time, though at no instant is there none unfinished."""
    stream = b"".join(packed(p.Ping(n)) for n in range(40))
    with trio.fail_after(20):
        async with Peer(url) as peer:
            await peer.greet()
            await peer.shout(stream[:5])
            for at in range(5, len(stream), 7):
                await peer.shout(stream[at : at + 7])
                await trio.sleep(0.01)
            assert [await peer.hear() for _ in range(40)] == [p.Pong(n) for n in range(40)]


CHATTER: dict[str, Callable[[int], p.Packet]] = {
    "pings": lambda n: p.Ping(n),
    "turns": lambda n: turn(n, (SEND, 1)),
    "old turns": lambda n: turn((1 << 40) - n),  # all but the first
    "refused turns": lambda n: turn(n, (RETRACT, n)),
    "unknown verbs": lambda n: p.Request(n, "x" * 1000, Map()),
    "requests": lambda n: p.Request(n, "status", Map()),
}


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(unsent_bytes=1 << 16, stalled_seconds=0.2)])
@pytest.mark.parametrize("chatter", CHATTER)
async def test_a_peer_that_takes_no_answers_is_read_no_further(
    url: str, bystander: Space, chatter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are bounded in the daemon, however small each is and however many are asked for."""

    def narrow(connected: socket.socket) -> SocketLink:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the kernel would take megabytes
        return SocketLink(connected)

    monkeypatch.setattr("server.connections.listeners.SocketLink", narrow)
    make = CHATTER[chatter]
    said = 0

    async def talk(peer: Peer) -> None:
        nonlocal said
        while True:
            data = b"".join(packed(make(said * 1000 + n + 1)) for n in range(1000))
            await peer.socket.send_all(data)
            said += 1
            assert said < 1_000, "it is read without end"

    with trio.fail_after(60):
        async with Peer(url, window=4096) as peer:
            await peer.greet()
            with pytest.raises(trio.BrokenResourceError):
                await talk(peer)


@pytest.mark.parametrize("limits", [Limits(requests=8)])
async def test_questions_that_wait_are_limited(url: str, bystander: Space) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        for number in range(9):
            await peer.say(p.Request(number, "frontier", Map({"after": 1 << 40, "wait": 60_000})))
        denied = await peer.hear()
        assert denied == p.Denied(8, "limit", "8 requests at once, the limit is limits.requests=8")


@pytest.mark.parametrize("limits", [Limits(connections=3, strangers=3)])
async def test_one_connection_too_many_is_told_so(
    url: str, bystander: Space, caplog: pytest.LogCaptureFixture
) -> None:
    async with Peer(url) as one, Peer(url) as two, Peer(url) as three:
        await one.greet("~one")
        await two.greet("~two")
        assert await three.rest() == [p.Bye("limit", "3 connections, the limit is limits.connections=3")]
    assert "refused a connection" in caplog.text
    caplog.clear()


# -- what is refused, with the limit named ------------------------------------------------------------

TINY = SpaceLimits(actions_per_turn=3, facts_per_owner=4, facts=6)


@pytest.mark.parametrize("space_limits", [TINY])
async def test_a_turn_beyond_a_limit_is_refused_whole(url: str, bystander: Space) -> None:
    def facts(first: int, count: int) -> list[Action]:
        return [(ASSERT, n, fact(n)) for n in range(first, first + count)]

    async with Peer(url) as one, Peer(url) as two:
        await one.greet("~one")
        await two.greet("~two")
        await one.say(turn(1, *facts(0, 4)), turn(2, *facts(0, 3)))
        assert await one.hear() == p.Refusal(
            1, "limit", "turn of 4 actions, the limit is limits.actions_per_turn=3"
        )
        assert isinstance(await one.hear(), p.Accepted)
        await one.say(turn(3, *facts(3, 2)))
        refusal = await one.hear()
        assert isinstance(refusal, p.Refusal) and refusal.sequence == 3
        assert (
            refusal.text.startswith("5 facts of session:")
            and "the limit is limits.facts_per_owner=4" in refusal.text
        )
        await one.say(turn(4, *facts(3, 1)))
        assert isinstance(await one.hear(), p.Accepted), "a refused turn used nothing up"
        await two.say(turn(1, *facts(10, 2)))
        refused = await two.hear()
        assert isinstance(refused, p.Refusal) and refused.sequence == 1
        assert refused.text.startswith("7 facts in the space, the limit is limits.facts=6; ")
        await two.say(turn(2, *facts(10, 1)))
        assert isinstance(await two.hear(), p.Accepted)
        assert sorted(await bystander.matches("fact($n)")) == [(n,) for n in (0, 1, 2, 3, 10)]
        await one.say(p.Bye("", ""))
        assert isinstance(await one.hear(), p.Bye)


async def test_a_turn_larger_than_a_frame_is_refused_and_the_client_goes_on(url: str) -> None:
    async with dataspace.connect(url) as space:
        with pytest.raises(
            Refused, match=f"limit: turn of .* exceeds the daemon.s limits.frame_bytes={MAX_FRAME}"
        ):
            await space.send("x" * MAX_FRAME)
        with pytest.raises(Refused, match=f"limit: .* elements, limit {MAX_ELEMENTS}"):
            await space.send([0] * MAX_ELEMENTS)
        claim = await space.assert_(fact(1))
        await space.retract(claim)
        assert space.reconnects == 0


REQUESTS: dict[str, tuple[str, dict[str, object], str]] = {
    "a wait beyond floating point": ("frontier", {"wait": 1 << 5000}, "bad-request"),
    "a negative wait": ("frontier", {"wait": -5}, "bad-request"),
    "an argument that it has not": ("frontier", {"space": "attic"}, "bad-request"),
    "no key": ("stage", {"key": (), "operations": ()}, "bad-request"),
    "an operation that is none": ("stage", {"key": ("a",), "operations": (1,)}, "bad-request"),
    "an operation of another kind": ("stage", {"key": ("a",), "operations": (("eat", 1),)}, "bad-request"),
    "a map in place of a verb": (
        "stage",
        {"key": ("a",), "operations": ((Map({"assert": 1}), 1),)},
        "bad-request",
    ),
    "a sequence beyond 64 bits": (
        "publish",
        {"keys": (), "owner": "me", "client": "me", "sequence": 1 << 80},
        "bad-request",
    ),
    "no owner": ("publish", {"keys": (), "owner": "", "client": "me", "sequence": 1}, "bad-request"),
    "what was never staged": (
        "publish",
        {"keys": (("nothing",),), "owner": "me", "client": "me", "sequence": 1},
        "not-staged",
    ),
    "a verb that is none": ("dance", {}, "unknown-verb"),
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_request_that_makes_no_sense_is_denied(url: str, bystander: Space, what: str) -> None:
    verb, arguments, code = REQUESTS[what]
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(p.Request(7, verb, Map(arguments)))
        denied = await peer.hear()
        assert isinstance(denied, p.Denied) and (denied.number, denied.code) == (7, code), denied
        await peer.say(p.Ping(1))
        assert await peer.hear() == p.Pong(1)


STREAMS: dict[str, tuple[dict[str, Value], str]] = {
    "an unknown option": ({"colour": "red"}, "bad-request"),
    "an unknown kind": ({"kind": "dance"}, "bad-request"),
    "another space": ({"space": "attic"}, "no-space"),
    "a space that is no text": ({"space": 1}, "no-space"),
    "a pattern that is none": ({"pattern": Record("$", 1)}, "bad-request"),
    "a flag that is none": ({"quiet": 1}, "bad-request"),
    "an epoch that is none": ({"after": "soon"}, "bad-request"),
    "an epoch below zero": ({"after": -1}, "bad-request"),
    "an epoch to come": ({"after": 1 << 80}, "epoch-ahead"),
    "a pattern that is none, from the log": ({"pattern": Record("lit"), "after": 0}, "bad-request"),
}


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("what", STREAMS)
async def test_a_stream_that_makes_no_sense_fails_alone(
    url: str, bystander: Space, what: str, quiet: bool
) -> None:
    spec, code = STREAMS[what]
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(opening(1, **{"quiet": quiet, **spec}))  # type: ignore[arg-type]  # that is the point
        error = await peer.hear()
        assert isinstance(error, p.Error) and (error.stream, error.code) == (1, code), error
        await peer.say(opening(2, fact(1)))
        assert isinstance(await peer.hear(), p.Values)
        assert await bystander.matches("Observe(_)") == []


# -- one identity, one connection ---------------------------------------------------------------------


async def test_a_second_connection_of_an_identity_replaces_the_first(url: str, bystander: Space) -> None:
    async with Peer(url) as old, Peer(url) as new:
        await old.greet("~twin")
        await old.say(turn(5, (ASSERT, 1, fact(1))), opening(1, fact(2), quiet=False))
        heard = {type(await old.hear()), type(await old.hear())}
        assert heard == {p.Values, p.Accepted}, (
            "the answer of a turn waits for the disk, what is shown does not"
        )
        welcome = await new.greet("~twin")
        assert welcome.sequence == 5
        assert (await old.farewell()).code == "superseded"
        assert await bystander.matches("fact($n)") == []
        assert await bystander.matches("Observe(_)") == []
        await new.say(turn(5, (SEND, "again")), turn(6, (ASSERT, 1, fact(1))))
        again, fresh = await new.hear(), await new.hear()
        assert isinstance(again, p.Accepted) and isinstance(fresh, p.Accepted)
        assert (again.first, fresh.first) == (5, 6) and again.epochs < fresh.epochs


async def test_an_earlier_attempt_of_a_process_does_not_replace_a_later_one(
    url: str, bystander: Space
) -> None:
    """A daemon that was held up finds several hellos of one client, and may read them in any order."""

    def attempt(number: int, process: bytes) -> p.Hello:
        return hello("~twin")._replace(features=Wanted(attempt=(number, process)).packed())

    async with Peer(url) as stale, Peer(url) as fresh, Peer(url) as other:
        await fresh.say(attempt(2, b"one"))
        assert isinstance(await fresh.hear(), p.Welcome)
        await stale.say(attempt(1, b"one"))
        assert (await stale.farewell()).code == "superseded"
        await fresh.say(turn(1, (ASSERT, 1, fact(1))))
        assert isinstance(await fresh.hear(), p.Accepted)
        await other.say(attempt(1, b"another"))
        assert isinstance(await other.hear(), p.Welcome)
        assert (await fresh.farewell()).code == "superseded"
        assert await bystander.matches("fact($n)") == []


@pytest.mark.parametrize("attempt", [1, "1", (1,), (1, "one"), (True, b"one"), (1, b"x" * 65)])
async def test_an_attempt_is_a_number_and_some_bytes(url: str, bystander: Space, attempt: Value) -> None:
    async with Peer(url) as peer:
        await peer.say(hello()._replace(features=Map({"attempt": attempt})))
        assert (await peer.farewell()).code == "malformed"


async def test_a_client_that_is_superseded_stays_away(url: str, bystander: Space) -> None:
    """Two of one identity must not push each other out for ever."""
    with trio.fail_after(10):
        with pytest.raises(ProtocolError, match="superseded"):
            async with dataspace.connect(url, client="twin") as old:
                async with dataspace.connect(url, client="twin") as new:
                    async with old.observe("fact($n)") as observation:
                        with pytest.raises(ProtocolError, match="superseded"):
                            while await observation.next_epoch() is not None:
                                pass
                    assert new.reconnects == 0
                    await new.send(fact(1))
                await trio.sleep_forever()


async def test_a_session_cannot_touch_the_handles_of_its_interests(url: str, bystander: Space) -> None:
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(opening(1, fact(1), quiet=False), turn(1, (RETRACT, -1)))
        bye = await peer.farewell()
    assert (bye.code, bye.text.startswith("a handle is")) == ("malformed", True)


# -- values at the edge -------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [True, False])
async def test_what_is_as_deep_as_may_be_reaches_all_who_observe(
    url: str, bystander: Space, quiet: bool
) -> None:
    """The deepest fact that a turn may carry fits into the frames that tell of it, and into the log."""
    async with Peer(url) as peer:
        await peer.greet()
        for depth, make in [(d, m) for d in range(1, 64) for m in (_nested, _nested_records)]:
            await peer.say(turn(2 * depth + (make is _nested), (SEND, make(depth))))
            heard = await peer.hear()
            if isinstance(heard, p.Bye):
                break
        assert depth > 48
    deepest = depth - 1
    async with Peer(url) as peer, bystander.observe("$whole", quiet=True) as observation:
        await observation.next_epoch()
        await peer.greet("~again")
        await peer.say(
            opening(1, _nested(deepest), quiet=quiet), turn(1, (ASSERT, 1, _nested_records(deepest)))
        )
        async for change in observation:
            if change.whole == _nested_records(deepest):
                break
    async with bystander.observe("$whole", after=0, quiet=True) as replayed:
        async for change in replayed:
            if change.kind == "-" and change.whole == _nested_records(deepest):
                break
    assert bystander.reconnects == 0


@pytest.mark.slow
async def test_facts_as_large_as_may_be_reach_all_who_observe(url: str, bystander: Space) -> None:
    """However much a state is in all, no frame is larger than what a client must take."""
    large = "x" * (MAX_FRAME - 1000)
    async with dataspace.connect(url) as writer, bystander.observe("large($n, _)", quiet=True) as numbers:
        for n in range(18):
            await writer.assert_(Record("large", n, large))
        rows = await bystander.matches("large($n, $text)")
        assert sorted(row[0] for row in rows) == list(range(18))  # type: ignore[type-var]  # numbers
        assert {row[1] for row in rows} == {large}
        del rows
        assert len(await numbers.next_epoch() or ()) == 0
    assert bystander.reconnects == 0
    gc.collect()


@pytest.mark.slow
async def test_a_state_of_many_elements_reaches_all_who_observe(url: str, bystander: Space) -> None:
    async with dataspace.connect(url) as writer:
        for turn_ in range(2):
            async with writer.turn() as draft:
                for n in range(1000):
                    draft.assert_(Record("wide", turn_, n, (0,) * 200))
        assert len(await bystander.matches("wide($, $, $)")) == 2000
    assert bystander.reconnects == 0


@pytest.mark.slow
async def test_a_state_larger_than_the_window_arrives_whole(url: str, bystander: Space) -> None:
    async with dataspace.connect(url) as writer:
        for turn_ in range(4):
            async with writer.turn() as draft:
                for n in range(10_000):
                    draft.assert_(Record("long", turn_, n, "x" * 50))
        with trio.fail_after(30):
            assert len(await bystander.matches("long($, $, $)")) == 40_000


# -- defects ------------------------------------------------------------------------------------------


@pytest.mark.skipif("sessions" in compiled_parts(), reason="machine code calls its own methods in any case")
@pytest.mark.parametrize("place", ["_turn", "_open", "_wait_room"])
async def test_a_defect_ends_the_session_in_which_it_is(
    url: str,
    bystander: Space,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Connection if place == "_wait_room" else ClientPeer
    genuine = getattr(owner, place)

    def defective(self: object, *args: object) -> object:
        peer = args[0] if owner is Connection else self
        if isinstance(peer, ClientPeer) and peer.name == "peer":
            raise ZeroDivisionError("simulated")
        return genuine(self, *args)

    async with Peer(url) as peer:
        await peer.greet()
        monkeypatch.setattr(owner, place, defective)
        await peer.say(turn(1, (ASSERT, 1, fact(1))), opening(1))
        assert await peer.farewell() == p.Bye("internal", "a defect in the daemon ended this session")
    while await bystander.matches("fact($n)"):
        pass  # until its facts have gone
    assert "this is a defect, please report it" in caplog.text
    assert "ZeroDivisionError: simulated" in caplog.text
    caplog.clear()


async def test_a_defect_that_strikes_while_others_flush_ends_its_own_session(
    url: str, bystander: Space, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    genuine = QueueMember.take_packed

    def defective(observation: QueueMember, count: int, size: int) -> tuple[int, bytes]:
        if size == 4321:
            raise ZeroDivisionError("simulated")
        return genuine(observation, count, size)

    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(opening(1, fact(1), snapshot=False, size=4321), p.Ping(1))
        assert [await peer.hear(), await peer.hear()] == [p.Reached(1, (1,)), p.Pong(1)]
        monkeypatch.setattr(QueueMember, "take_packed", defective)
        await bystander.send(fact(1))
        assert (await peer.farewell()).code == "internal"
    assert "ZeroDivisionError: simulated" in caplog.text
    caplog.clear()


async def test_a_defect_in_a_question_ends_its_session(
    url: str, bystander: Space, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def defective(*_args: object) -> Value:
        raise ZeroDivisionError("simulated")

    monkeypatch.setattr(GroupCommit, "wait_durable", defective)
    async with Peer(url) as peer:
        await peer.greet()
        await peer.say(p.Request(1, "sync", Map()))
        assert (await peer.farewell()).code == "internal"
    assert "ZeroDivisionError: simulated" in caplog.text
    monkeypatch.undo()
    caplog.clear()


async def test_names_are_written_to_the_log_without_control_characters(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dataspace"):
        async with Peer(url) as peer:
            await peer.say(p.Hello(p.VERSION, "~\x1b[2J\nnot a line", "\x9b2J\r\n", Map()))
            await peer.hear()
    told = [record.getMessage() for record in caplog.records]
    assert any("not a line" in line for line in told)
    assert all(line.isprintable() for line in told)


# -- anything at all ----------------------------------------------------------------------------------

numbers = st.one_of(st.integers(0, 5), st.integers(0, (1 << 63) - 1))
verbs = st.sampled_from(["sync", "status", "frontier", "stage", "discard", "publish", "index", "x"])
names = st.sampled_from(
    ["key", "keys", "operations", "owner", "client", "sequence", "replace", "after", "form", "most"]
)
options = st.sampled_from(
    ["kind", "space", "pattern", "snapshot", "after", "as_of", "upto", "durable", "quiet"]
)
actions = st.one_of(
    st.tuples(st.just(ASSERT), numbers, values),
    st.tuples(st.just(RETRACT), numbers),
    st.tuples(st.just(SEND), values),
    st.tuples(st.just(REPLACE), numbers, numbers, values),
    st.lists(values, max_size=4).map(tuple),
)
packets: st.SearchStrategy[p.Packet] = st.one_of(
    st.builds(p.Turn, numbers, st.just("main"), st.sampled_from(["", "me"]), st.lists(actions).map(tuple)),
    st.builds(p.Open, numbers, st.dictionaries(options, values).map(Map), numbers, numbers),
    st.builds(opening, st.integers(1, 9), values, after=st.integers(0, 9)),
    st.builds(p.Ask, numbers, numbers, numbers),
    st.builds(p.Abort, numbers, st.just(""), st.booleans()),
    st.builds(
        p.Request,
        numbers,
        verbs,
        st.dictionaries(names, st.one_of(values, st.just(("a",)), numbers)).map(Map),
    ),
    st.builds(p.Ping, numbers),
)
rubbish = st.one_of(
    packets.map(packed),
    st.binary(max_size=20),
    st.binary(max_size=20).map(frame),
    values.map(lambda value: frame(pack(value))),
    st.tuples(packets.map(packed), st.integers(0, 50), st.binary(min_size=1, max_size=1)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]
    ),
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=st.lists(rubbish, max_size=8))
def test_any_bytes_after_hello_are_answered_or_end_the_session(pieces: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as data:
        trio.run(_shout, Path(data), pieces)


async def _shout(data: Path, pieces: list[bytes]) -> None:
    """One daemon, one peer that says all of it, and one good client on the side."""
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=data))
        url = addresses[0]
        with trio.fail_after(30):
            async with dataspace.connect(url) as bystander:
                await bystander.assert_(Record("bystander", 1))
                async with Peer(url) as peer:
                    await peer.greet()
                    await peer.shout(b"".join(pieces))
                    await peer.socket.send_eof()
                    heard = await peer.rest()
                assert all(bye.code != "internal" for bye in heard if isinstance(bye, p.Bye))
                assert await bystander.matches("bystander($n)") == [(1,)]
        nursery.cancel_scope.cancel()
