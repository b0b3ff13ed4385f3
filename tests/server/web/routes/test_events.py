"""Changes as server-sent events: whole epochs under their numbers, and nothing that outlives its reader."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Record
from server.config.model import Config
from server.daemon.serve import serve
from server.web.routes import events
from tests.server.web.routes.callers import SECONDS, Event, EventSource, HttpDaemon, raw, record


def until(holds: Callable[[], bool]) -> None:
    """Asks again and again until something holds."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"


def test_the_state_comes_first_and_then_each_epoch(daemon: HttpDaemon) -> None:
    first = daemon.put(Record("here", "Ann"))
    with EventSource(daemon, "here($who)") as source:
        state = source.next()
        assert (state.number, state.name) == (first, "message")
        assert state.data["state"] is True and state.data["added"] == [{"who": "Ann"}]
        epoch = daemon.turn(
            {"replace": record("here", "Ann"), "with": record("here", "Ben")}, {"send": record("here", "!")}
        ).json()["epoch"]
        event = source.next()
    assert event.number == epoch and event.data.pop("time")
    assert event.data == {
        "epoch": epoch,
        "added": [{"who": "Ben"}],
        "messages": [{"who": "!"}],
        "removed": [{"who": "Ann"}],
    }


def test_a_reader_goes_on_after_the_last_event(daemon: HttpDaemon) -> None:
    with EventSource(daemon, "step($n)", snapshot=False, quiet=True) as source:
        daemon.put(Record("step", 0))
        last = source.next().id
    missed = [daemon.put(Record("step", at)) for at in range(1, 4)]
    with EventSource(daemon, "step($n)", last=last) as source:
        seen = [source.next() for _ in missed]
        assert [each.number for each in seen] == missed
        assert [each.data["added"] for each in seen] == [[{"n": at}] for at in range(1, 4)]
        later = daemon.put(Record("step", 4))
        assert source.next().number == later


def test_a_stream_with_an_end_says_so_and_is_not_begun_again(daemon: HttpDaemon) -> None:
    epochs = [daemon.put(Record("ending", at)) for at in range(3)]
    upto = daemon.put(Record("other", 1))
    with EventSource(daemon, "ending($n)", after=epochs[0] - 1, upto=upto) as source:
        seen = list(source)
    assert [each.name for each in seen] == ["message"] * 3 + ["end"]
    assert [each.number for each in seen] == [*epochs, upto]
    again = EventSource(daemon, "ending($n)", upto=upto, last=seen[-1].id)
    assert again.status == 204
    again.close()


def test_an_observer_is_an_interest_unless_it_is_quiet(daemon: HttpDaemon) -> None:
    with EventSource(daemon, "Observe(watched($p))") as interests:
        assert interests.next().data["added"] == []
        with EventSource(daemon, "watched($x)", quiet=True) as quiet:
            quiet.next()
            with EventSource(daemon, "watched($x)") as source:
                source.next()
                assert len(interests.next().data["added"]) == 1
        assert len(interests.next().data["removed"]) == 1


@pytest.mark.slow
def test_a_large_epoch_is_one_event(daemon: HttpDaemon) -> None:
    with EventSource(daemon, "large($n)") as source:
        assert source.next().data["added"] == []
        epoch = daemon.put(*[Record("large", at) for at in range(5_000)])
        event = source.next()
    assert event.number == epoch
    assert [row["n"] for row in event.data["added"]] == list(range(5_000))


@pytest.mark.parametrize(
    ("query", "last", "text"),
    [
        ({"policy": "perhaps"}, "", "policy must be one of wait, conflate, fail, drop, got 'perhaps'"),
        ({"window": 0}, "", "window must be a number from 1 to 4096, got 0"),
        ({"pace": 60_001}, "", "pace must be 0 to 60000 milliseconds, got 60001"),
        (
            {"pace": 9, "policy": "wait"},
            "",
            "a pace puts epochs together, which needs the policy conflate, not wait",
        ),
        ({"net": "yes"}, "", "net must be true or false, got 'yes'"),
        (
            {},
            "x",
            "Last-Event-ID must be a number from 0 to 2^63-1, or the id of an event, such as 12-83f3ebbe, "
            "got 'x'",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(
    daemon: HttpDaemon, query: dict[str, Any], last: str, text: str
) -> None:
    source = EventSource(daemon, "here($who)", last=last, **query)
    said = json.loads(source.response.read())
    source.close()
    assert (source.status, said["code"], said["detail"]) == (400, "bad-request", text)


def test_with_a_pace_epochs_come_together_and_lead_to_the_state(daemon: HttpDaemon) -> None:
    with EventSource(daemon, "paced($n)", pace=40) as source:
        source.next()
        epochs = [daemon.put(Record("paced", at)) for at in range(20)]
        seen, rows = [epochs[0] - 1], []
        while seen[-1] < epochs[-1]:
            event = source.next()
            assert seen[-1] < event.data.get("first", event.data["epoch"]) <= event.data["epoch"]
            seen.append(event.data["epoch"])
            rows += event.data["added"]
    assert rows == [{"n": at} for at in range(20)]


def test_a_reader_that_vanishes_gives_its_places_back(daemon: HttpDaemon) -> None:
    def counts() -> tuple[int, int, int]:
        said = daemon.get("/v1/status").json()
        return said["streams"], said["patterns"], said["sessions"] - 1  # that of this request

    until(lambda: counts() == (0, 0, 0))
    sources = [EventSource(daemon, f"vanishing($n, {at})") for at in range(10)]
    for each in sources:
        each.next()
    assert counts() == (10, 10, 10)
    for each in sources:
        each.close()
    until(lambda: counts() == (0, 0, 0))


# -- a daemon that is killed --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_daemon_leaves_no_gap(tmp_path: Path) -> None:
    """A writer and a reader go on through a kill; the reader has each epoch of the log once."""
    daemon = HttpDaemon(tmp_path / "data")
    daemon.start()
    seen: list[Event] = []
    last, at = "0", 0
    with EventSource(daemon, "step($n)", last=last, policy="wait") as source:
        for _ in range(5):
            epoch = daemon.put(Record("step", at))
            at += 1
            while not seen or seen[-1].number < epoch:
                seen.append(source.next())
        last, unread = seen[-1].id, daemon.put(Record("step", at))
        at += 1
        daemon.kill()
    assert seen[-1].number < unread
    daemon.start()
    with EventSource(daemon, "step($n)", last=last, policy="wait") as source:
        seen.append(source.next())
    written = daemon.get("/v1/spaces/main/log", pattern="step($n)").lines()
    daemon.stop()
    assert [each.data["added"] for each in seen] == [[{"n": n}] for n in range(at)]
    assert [each.number for each in seen] == [each["epoch"] for each in written]


# -- slow readers -------------------------------------------------------------------------------------


class SlowReader:
    """A reader that begins to read only when far more than may wait has been written."""

    def __init__(self, daemon: HttpDaemon, policy: str) -> None:
        path = f"/v1/spaces/main/observe?pattern=bulky($n,$at,$text)&policy={policy}&window=1"
        request = f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"
        self._socket = raw(daemon, request.encode(), window=4096)

    def read(self, last: int) -> list[Event]:
        """The events to an epoch, or to a problem, which may have come in the midst of another one."""
        said = bytearray()
        with self._socket:
            while chunk := self._socket.recv(1 << 20):
                said += chunk
                if re.search(rb"id: %d-\w+\n\n" % last, said[-len(chunk) - 100 :]) or b"problem" in said:
                    break
        blocks = bytes(said).partition(b"\r\n\r\n")[2].split(b"\n\n")
        if (torn := blocks[-1].partition(b"\n: problem ")[2]) != b"":
            blocks[-1] = b"event: problem\ndata: " + torn
        return [_event(block.splitlines()) for block in blocks if b"\ndata: " in b"\n" + block]


def _event(lines: list[bytes]) -> Event:
    fields = [line.partition(b": ") for line in lines]
    data = b"\n".join(value for name, _, value in fields if name == b"data")
    said = {name: value.decode() for name, _, value in fields}
    return Event(said.get(b"id", ""), said.get(b"event", "message"), json.loads(data))


@pytest.mark.slow
def test_a_slow_reader_costs_what_its_policy_allows(daemon: HttpDaemon) -> None:
    until(lambda: streams(daemon) == 0)
    conflating, failing = SlowReader(daemon, "conflate"), SlowReader(daemon, "fail")
    until(lambda: streams(daemon) == 2)
    rounds = 18
    for at in range(rounds):
        facts = [{"assert": record("bulky", n, at, "x" * 300)} for n in range(1_000)]
        epoch = daemon.turn(*facts, by="bulky($n, _, _)").json()["epoch"]
    assert daemon.get("/v1/status").json()["waiting_bytes"] < 20 << 20
    failed = failing.read(epoch)[-1]
    assert (failed.name, failed.data["status"], failed.data["code"]) == ("problem", 429, "slow-observer")
    told = conflating.read(epoch)
    assert any("first" in each.data for each in told), "nothing was conflated"
    assert len(told) < rounds and told[-1].number == epoch
    state: dict[int, int] = {}
    for each in told:
        for row in each.data["added"]:
            state[row["n"]] = row["at"]
    assert state == dict.fromkeys(range(1_000), rounds - 1)
    until(lambda: streams(daemon) == 0)


def streams(daemon: HttpDaemon) -> object:
    return daemon.get("/v1/status").json()["streams"]


# -- while nothing happens ----------------------------------------------------------------------------


async def test_a_silent_stream_beats_and_says_how_far_it_is(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BEAT", 0.05)
    monkeypatch.setattr(events, "PATIENCE", 0.05)
    config = Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), tmp_path)
    tcp, http = await nursery.start(serve, config)
    port = int(http.rpartition(":")[2])
    with trio.fail_after(SECONDS):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        path = "/v1/spaces/main/observe?pattern=silent($x)"
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with dataspace.connect(tcp) as space, stream:
            said = b""
            while said.count(b": beat\n\n") < 3:
                said += await stream.receive_some()
            epoch = await space.send(Record("other", 1))
            identity = said.partition(b"id: 0-")[2].partition(b"\n")[0]
            while b"id: %d-%s\n\n" % (epoch, identity) not in said:
                said += await stream.receive_some()
    assert identity and b"data:" not in said[said.index(b": beat") :]
    nursery.cancel_scope.cancel()
