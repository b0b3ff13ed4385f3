"""A turn is one trace: its arrival, the commit, the disk, the observers, and the answer."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
import trio
from opentelemetry import trace as otel

import dataspace
from dataspace import Record
from dataspace.errors import ExpectationFailed, Refused, UsageError
from dataspace.kernel.actions import SEND
from dataspace.wire import packets as p
from server.config.model import Config
from server.daemon.serve import serve
from tests.server.peers import Peer, fact, turn
from tests.server.tracing.collectors import Collector
from tests.server.tracing.conftest import Serving

TRACE, CAUSE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RECORDED, UNRECORDED = f"00-{TRACE}-{CAUSE}-01", f"00-{TRACE}-{CAUSE}-00"

TREE = """\
turn connection=N epoch=N outcome=accepted principal=address:127.0.0.1 space=main
  commit actions=3
  disk group.epochs=N group.wait=N
  deliver first=N observers=3 observers.followed=3 observers.late=0"""


def shown(collector: Collector) -> str:
    """The tree of spans, without what differs from run to run."""
    lines = []
    for line in collector.tree():
        words = [
            f"{word.partition('=')[0]}=N"
            if word.startswith(("connection=", "epoch=", "group.", "first="))
            else word
            for word in line.split(" ")
        ]
        lines.append(" ".join(words))
    return "\n".join(lines)


async def test_a_turn_with_a_parent_is_one_tree_below_that_parent(
    serving: Serving, collector: Collector
) -> None:
    async with serving(ratio=0.0) as (url,), dataspace.connect(url) as space, dataspace.connect(url) as other:
        async with (
            other.observe("present($who)") as one,
            other.observe("present($who)") as two,
            space.observe("absent($who)") as own,
        ):
            for each in (one, two, own):
                await each.epochs().__anext__()  # the state
            async with space.turn(traceparent=RECORDED) as draft:
                draft.assert_(Record("present", "Alice"))
                draft.assert_(Record("absent", "Bob"))
                draft.send(Record("unseen", 1))
            for each in (one, two, own):
                await each.epochs().__anext__()
    assert shown(collector) == TREE
    assert collector.paths == ["/v1/traces"]
    assert collector.service["service.name"] == "dataspace"

    spans = {each.name: each for each in collector.spans}
    root, commit, disk = spans["turn"], spans["commit"], spans["disk"]
    assert {each.trace for each in spans.values()} == {TRACE}
    assert root.parent == CAUSE
    assert root.kind == 2  # that of a server
    assert {each.parent for each in spans.values() if each is not root} == {root.span}
    assert root.begin <= commit.begin <= commit.end <= disk.end <= root.end
    assert spans["deliver"].begin == disk.begin == commit.end
    assert spans["deliver"].end >= commit.end


async def test_the_parent_decides_and_chance_decides_without_one(
    serving: Serving, collector: Collector
) -> None:
    async with serving(ratio=1.0) as (url,), dataspace.connect(url) as space:
        async with space.turn(traceparent=UNRECORDED) as draft:
            draft.send(fact(1))
        await space.send(fact(2))
        async with Peer(url) as peer:  # what is no traceparent is as none
            await peer.greet()
            await peer.say(turn(1, (SEND, fact(3)))._replace(traceparent="nonsense"))
            assert isinstance(await peer.hear(), p.Accepted)
    epochs = [each.said["dataspace.epoch"] for each in collector.spans if each.name == "turn"]
    assert len(epochs) == 2
    assert len({each.trace for each in collector.spans}) == 2
    assert all(not each.parent for each in collector.spans if each.name == "turn")


async def test_nothing_is_traced_that_is_not_asked_for(serving: Serving, collector: Collector) -> None:
    async with serving(ratio=0.0) as (url,), dataspace.connect(url) as space:
        await space.send(fact(1))
        async with space.turn(traceparent=UNRECORDED) as draft:
            draft.send(fact(2))
    assert collector.spans == []


@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_a_refusal_has_its_code_and_no_disk(
    serving: Serving, collector: Collector, ratio: float
) -> None:
    stated = RECORDED if ratio == 0 else ""
    async with serving(ratio) as (url,), dataspace.connect(url) as space:
        with pytest.raises(Refused):
            async with space.turn(traceparent=stated) as draft:
                draft.retract(77)
        with pytest.raises(ExpectationFailed):
            async with space.turn(
                expect=[dataspace.exactly("fact($n)", [(1,)])], traceparent=stated
            ) as draft:
                draft.send(fact(1))
    roots = [each for each in collector.spans if each.name == "turn"]
    assert [(each.failed, each.said["dataspace.code"]) for each in roots] == [
        (True, "unknown-handle"),
        (True, "expectation"),
    ]
    assert {each.said["dataspace.outcome"] for each in roots} == {"refused"}
    assert {each.name for each in collector.spans} == {"turn", "commit"}


async def test_a_turn_that_is_sent_again_is_shown_as_such(serving: Serving, collector: Collector) -> None:
    async with serving(ratio=0.0) as (url,), Peer(url) as peer:
        await peer.greet()
        sent = turn(1, (SEND, fact(1)))._replace(traceparent=RECORDED)
        for _ in range(2):
            await peer.say(sent)
            assert isinstance(await peer.hear(), p.Accepted)
    outcomes = [each.said["dataspace.outcome"] for each in collector.spans if each.name == "turn"]
    assert len(outcomes) == 2
    assert set(outcomes) == {"accepted", "repeated"}


async def test_turns_of_several_owners_and_conditional_ones_are_traced(
    serving: Serving, collector: Collector
) -> None:
    async with serving(ratio=1.0) as (url,), dataspace.connect(url) as space:
        async with space.turn() as draft:
            draft.assert_(fact(1))
            draft.assert_(fact(2), owner="results")
        async with space.turn(expect=[dataspace.absent("fact(3)")]) as draft:
            draft.assert_(fact(3))
    counts = [each.said["dataspace.actions"] for each in collector.spans if each.name == "commit"]
    assert set(counts) == {1, 2}


async def test_http_passes_the_header_on(serving: Serving, collector: Collector) -> None:
    def post(port: int, path: str, said: object) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        headers = {"content-type": "application/json", "traceparent": RECORDED}
        connection.request("POST", f"/v1/spaces/main/{path}", json.dumps(said), headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    turned = {"owner": "results", "actions": [{"assert": 1}, {"send": 2}]}
    async with serving(ratio=0.0, listen=("http:127.0.0.1:0",)) as (url,):
        port = int(url.rpartition(":")[2].strip("/"))
        for path, said in (("turns", turned), ("messages", {"messages": [1, 2]})):
            status, body = await trio.to_thread.run_sync(post, port, path, said)
            assert status == 200, body
    roots = [each for each in collector.spans if not each.name.startswith(("commit", "disk", "deliver"))]
    assert sorted([each.name for each in roots]) == ["publish", "turn"]
    assert {(each.trace, each.parent) for each in roots} == {(TRACE, CAUSE)}
    assert {each.said["dataspace.outcome"] for each in roots} == {"accepted"}


def current() -> otel.Span:
    """A span as a program has one that uses OpenTelemetry."""
    context = otel.SpanContext(
        int(TRACE, 16), int(CAUSE, 16), is_remote=False, trace_flags=otel.TraceFlags(1)
    )
    return otel.NonRecordingSpan(context)


async def test_a_client_states_the_span_that_is_current_if_it_was_asked_to(
    serving: Serving, collector: Collector
) -> None:
    async with serving(ratio=0.0) as (url,):
        async with dataspace.connect(url, traces=True) as space, dataspace.connect(url) as silent:
            await space.send(fact(1))  # there is no span
            with otel.use_span(current()):
                await space.send(fact(2))
                await silent.send(fact(3))
    roots = [each for each in collector.spans if each.name == "turn"]
    assert [(each.trace, each.parent) for each in roots] == [(TRACE, CAUSE)]


async def test_so_does_a_blocking_client(serving: Serving, collector: Collector) -> None:
    def run(url: str) -> None:
        with dataspace.connect_blocking(url, traces=True) as space:
            with otel.use_span(current()):
                space.send(fact(1))
                with space.turn() as draft:
                    draft.send(fact(2))

    async with serving(ratio=0.0) as (url,):
        await trio.to_thread.run_sync(run, url)
    roots = [each for each in collector.spans if each.name == "turn"]
    assert [(each.trace, each.parent) for each in roots] == [(TRACE, CAUSE)] * 2


async def test_a_daemon_that_makes_no_spans_ignores_the_field(tmp_path: Path, nursery: trio.Nursery) -> None:
    (url,) = await nursery.start(serve, Config(("tcp:127.0.0.1:0",), tmp_path))
    async with dataspace.connect(url) as space:
        async with space.turn(traceparent=RECORDED) as draft:
            draft.assert_(fact(1))
        async with Peer(url) as peer:
            await peer.greet()
            await peer.say(turn(1, (SEND, fact(2)))._replace(traceparent=RECORDED))
            assert isinstance(await peer.hear(), p.Accepted)


async def test_a_traceparent_of_a_program_must_be_one(serving: Serving) -> None:
    async with serving() as (url,), dataspace.connect(url) as space:
        with pytest.raises(UsageError, match="a traceparent such as 00-"):
            async with space.turn(traceparent="4bf9"):
                raise AssertionError("the block does not begin")
