"""Topics over HTTP: every completed epoch whole, those of durable ones under their numbers."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import dataspace
from dataspace import Record
from dataspace.codec import pack
from dataspace.topics.epochs import Gathered
from dataspace.topics.messages import Batch
from index.values.jsons import to_json
from server.topics.routes import tell_live
from server.web.routes.streaming import Out, Paced
from tests.server.web.routes.callers import EventSource, HttpDaemon


def publish(daemon: HttpDaemon, topic: str, *items: object, **more: object) -> Any:
    return daemon.call("POST", f"/v1/topics/{topic}", {"items": items, **more}).json()


def test_what_is_published_comes_as_epochs(daemon: HttpDaemon) -> None:
    assert publish(daemon, "readings", 1, 2.5) == {"topic": "readings", "time": 0}
    with EventSource(daemon, "", topic="readings", after=0) as source:
        first = source.next()
        assert (first.number, first.data) == (1, {"number": 1, "time": 0, "items": [1, 2.5]})
        time = publish(daemon, "readings", to_json(Record("reading", "hall")))["time"]
        second = source.next()
        assert second.data == {"number": 2, "time": time, "items": [{"@": "reading", "fields": ["hall"]}]}
    publish(daemon, "readings", "third")
    with EventSource(daemon, "", topic="readings", last=second.id) as source:
        third = source.next()
        assert (third.number, source.last) == (3, third.id)
    with EventSource(daemon, "", topic="readings") as source:
        publish(daemon, "readings", "fourth")
        assert source.next().data["items"] == ["fourth"]


def test_a_time_that_is_over_is_refused(daemon: HttpDaemon) -> None:
    assert publish(daemon, "timed", "a", time=7)["time"] == 7
    again = daemon.call("POST", "/v1/topics/timed", {"items": ["a"], "time": 7})
    assert again.problem()[:2] == (400, "bad-request")
    with EventSource(daemon, "", topic="timed", after=0) as source:
        assert source.next().data == {"number": 1, "time": 7, "items": ["a"]}


def test_items_of_a_client_are_seen_and_those_of_requests_by_it(daemon: HttpDaemon) -> None:
    with dataspace.connect_blocking(daemon.url) as space:
        with space.publish("both", durable=True, partitions=2) as publication:
            publication.finish("theirs", then=1)
    publish(daemon, "both", "ours", partition=1)
    seen: list[object] = []
    with EventSource(daemon, "", topic="both", after=0) as source:
        while len(seen) < 2:
            seen += source.next().data["items"]
    assert sorted(map(str, seen)) == ["ours", "theirs"]


def test_a_range_of_epochs_has_an_end(daemon: HttpDaemon) -> None:
    for at in range(3):
        publish(daemon, "ranged", at)
    with EventSource(daemon, "", topic="ranged", after=0, upto=2) as source:
        seen = list(source)
    assert [(each.number, each.name) for each in seen] == [(1, "message"), (2, "message"), (2, "end")]
    done = EventSource(daemon, "", topic="ranged", upto=2, last=seen[-1].id)
    assert done.status == 204
    done.close()


@pytest.mark.slow
def test_a_large_epoch_is_one_event(daemon: HttpDaemon) -> None:
    items = ["x" * 100_000] * 30
    publish(daemon, "large", *items)
    with EventSource(daemon, "", topic="large", after=0) as source:
        assert source.next().data["items"] == items


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/topics/none/events", None, 404, "no-topic"),
        ("GET", "/v1/topics/readings/events?after=1000", None, 404, "epoch-ahead"),
        ("POST", "/v1/topics/readings", {"items": []}, 400, "bad-request"),
        ("POST", "/v1/topics/readings", {"items": [1], "time": "x"}, 400, "bad-request"),
        ("POST", "/v1/topics/readings", {"items": [1], "partition": 9}, 400, "bad-request"),
    ],
)
def test_a_request_that_makes_no_sense_says_so(
    daemon: HttpDaemon, method: str, path: str, body: object, status: int, code: str
) -> None:
    publish(daemon, "readings", "one")
    answer = daemon.call(method, path, body)
    assert answer.problem()[:2] == (status, code), json.loads(answer.body)


def test_a_topic_in_memory_is_published_to_and_its_epochs_come_whole(daemon: HttpDaemon) -> None:
    with (
        dataspace.connect_blocking(daemon.url) as space,
        space.publish("passing", partitions=2) as publication,
        EventSource(daemon, "", topic="passing") as source,
    ):
        publication.send("theirs", Record("at", 1.0))
        publish(daemon, "passing", "ours", partition=1, time=0)
        publication.finish("more", then=1)
        first = source.next()
        items = ["theirs", {"@": "at", "fields": [1.0]}, "more", "ours"]
        assert (first.id, first.data) == ("", {"time": 0, "items": items})
        publication.advance(5)
        assert publish(daemon, "passing", "later", partition=1, time=5) == {"topic": "passing", "time": 5}
        publication.advance(6)
        assert source.next().data == {"time": 5, "items": ["later"]}


def test_the_crash_of_a_publisher_is_in_the_event(daemon: HttpDaemon) -> None:
    with dataspace.connect_blocking(daemon.url) as space, ExitStack() as reading:
        with pytest.raises(RuntimeError, match="out of paper"), space.publish("broken") as publication:
            source = reading.enter_context(EventSource(daemon, "", topic="broken"))
            publication.send("half")
            raise RuntimeError("out of paper")
        seen = source.next().data
        assert (seen["time"], seen["items"]) == (0, ["half"])
        assert "out of paper" in seen["crashed"]


@pytest.mark.parametrize("parameters", [{"after": 0}, {"last": "3"}, {"upto": 9}])
def test_the_past_of_a_topic_in_memory_is_refused(daemon: HttpDaemon, parameters: dict[str, Any]) -> None:
    with dataspace.connect_blocking(daemon.url) as space, space.publish("gone"):
        headers = {"Last-Event-ID": parameters["last"]} if "last" in parameters else {}
        asked = "&".join(f"{name}={value}" for name, value in parameters.items() if name != "last")
        refused = daemon.call("GET", f"/v1/topics/gone/events?{asked}", headers=headers)
        assert refused.problem()[:2] == (409, "not-durable")


def resident(daemon: HttpDaemon) -> int:
    """Bytes of memory that a daemon has."""
    said = Path(f"/proc/{daemon.process.pid}/statm").read_text()
    return int(said.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_open_epochs_of_small_items_cost_a_daemon_what_they_were_sent_with(daemon: HttpDaemon) -> None:
    with (
        dataspace.connect_blocking(daemon.url) as space,
        space.publish("small") as publication,
        EventSource(daemon, "", topic="small"),
    ):
        items = [(1,)] * 60_000
        publication.send(*items)
        publication.flush()  # what one of them takes to be checked is there from now on
        before = resident(daemon)
        for _ in range(8):
            publication.send(*items)
        publication.flush()
        daemon.put(Record("small", 1))  # by when the reader has what was sent to it
        assert resident(daemon) - before < 12 << 20, "8 × 120 kB; as values they take 27 MB"


async def test_others_run_while_the_event_of_a_large_epoch_is_made() -> None:
    written: list[bytes] = []
    turns = 0

    async def send(message: MutableMapping[str, Any]) -> None:
        written.append(message["body"])

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    batch = Batch(0, 3, pack(tuple((at,) for at in range(20_000))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        text = Paced(Out(send))
        await tell_live(Gathered(3, (batch, batch)), text)
        await text.flush()
        nursery.cancel_scope.cancel()
    assert turns > 2 and len(written) > 2
    said = json.loads(b"".join(written).removeprefix(b"data: "))
    assert said == {"time": 3, "items": [[at] for at in range(20_000)] * 2}


async def test_a_reader_of_a_topic_that_only_goes_on_hears_a_beat(
    autojump_clock: trio.testing.MockClock,
) -> None:
    written: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        written.append(message["body"])

    text = Paced(Out(send))
    for _ in range(40):  # steps that complete nothing, each within the time in which a session would ping
        await trio.sleep(1)
        await text.beat(15)
    assert written == [b": beat\n\n"] * 2
