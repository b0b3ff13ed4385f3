"""A follower answers HTTP requests that read, and sends all others to its leader."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dataspace.wire import packets as p
from index.patterns.patterns import capture
from index.values.values import Record
from server.web.inspector.files import HOME
from tests.server.peers import opening
from tests.server.processes import DaemonProcess
from tests.server.web.routes.callers import EventSource, HttpDaemon, ask, record, with_query
from tests.server.web_client import JSON, WebPeer

ADMIN: Final = "the secret of the administrator"
READER: Final = "the secret of a mere reader"
CONFIG: Final = f"""
[[tokens]]
name = "admin"
secret = "{ADMIN}"

[[tokens]]
name = "reader"
secret = "{READER}"
observe = ["shown(_)"]
"""
TURNS: Final = "/v1/spaces/main/turns"
SECONDS: Final = 20.0

Pair = tuple[HttpDaemon, HttpDaemon]


def follower_of(leader: DaemonProcess, *more: str) -> HttpDaemon:
    """A follower that has heard where its leader is."""
    follower = HttpDaemon(leader.data, "--follow", str(leader.data), *more)
    follower.start()
    return follower


def ends(*daemons: DaemonProcess) -> None:
    for each in daemons:
        assert each.stop() == 0


def wait_status(follower: HttpDaemon, status: int, token: str = "") -> None:
    """Waits until the follower answers a turn so."""
    until = time.monotonic() + SECONDS
    while (found := follower.call("POST", TURNS, {}, token=token).status) != status:
        assert time.monotonic() < until, found
        time.sleep(0.02)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    leader = HttpDaemon(tmp_path_factory.mktemp("followed") / "data")
    leader.start()
    follower = follower_of(leader)
    wait_status(follower, 307)
    yield leader, follower
    ends(follower, leader)


def rows(follower: HttpDaemon, label: str, epoch: int) -> list[object]:
    """The facts of a label at a follower, once it has that epoch."""
    until = time.monotonic() + SECONDS
    while (said := follower.get("/v1/spaces/main/facts", pattern=f"{label}($n)").json())["epoch"] < epoch:
        assert time.monotonic() < until
    found: list[object] = said["rows"]
    return found


def test_what_reads_is_answered(pair: Pair) -> None:
    leader, follower = pair
    first = leader.put(Record("read", 1))
    last = leader.put(Record("read", 2))
    assert rows(follower, "read", last) == [{"n": 1}, {"n": 2}]
    past = follower.get("/v1/spaces/main/facts", pattern="read($n)", as_of=first).json()
    assert past["rows"] == [{"n": 1}]
    lines = follower.get("/v1/spaces/main/log", pattern="read($n)", from_=first, until=last).lines()
    assert [each["epoch"] for each in lines] == [first, last]
    assert follower.get("/v1/spaces/main/rules").json() == {"rules": []}
    assert follower.get("/v1/status").json()["durable_epoch"] >= last
    assert follower.get("/v1/openapi.json").status == follower.get(HOME).status == 200
    assert follower.get("/healthz").status == 200


def test_a_quiet_stream_goes_on_with_what_the_leader_does(pair: Pair) -> None:
    leader, follower = pair
    with EventSource(follower, "told($n)", quiet=True) as source:
        events = iter(source)
        assert next(events).data["state"]
        epoch = leader.put(Record("told", 1))
        event = next(events)
        assert (event.number, event.data["added"]) == (epoch, [{"n": 1}])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", TURNS),
        ("POST", "/v1/spaces/main/messages"),
        ("POST", "/v1/topics/a%2Fb%20c"),
        ("GET", with_query("/v1/spaces/main/observe", pattern='x("%", $y)', upto=10**6)),
        ("GET", with_query("/v1/spaces/main/why", fact="x(1)")),
        ("GET", with_query("/v1/spaces/main/why-not", pattern="x(1)")),
        ("GET", "/v1/spaces/main/explain"),
    ],
)
def test_all_else_is_sent_to_the_leader_under_the_same_path(pair: Pair, method: str, path: str) -> None:
    leader, follower = pair
    answer = follower.call(method, path, {} if method == "POST" else None)
    assert answer.problem()[:2] == (307, "elsewhere")
    assert answer.headers["location"] == f"http://127.0.0.1:{leader.web_port}{path}"
    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(answer.body)["url"] == leader.url


def test_a_turn_that_goes_where_it_is_sent_happens_there(pair: Pair) -> None:
    leader, follower = pair
    turn = {"owner": "sent", "actions": [{"assert": record("sent", 1)}]}
    answer = follower.call("POST", TURNS, turn)
    path = answer.headers["location"].partition(f":{leader.web_port}")[2]
    epoch = leader.call("POST", path, turn).json()["epoch"]
    assert rows(follower, "sent", epoch) == [{"n": 1}]


def test_a_connection_goes_on_after_a_redirection_of_a_body(pair: Pair) -> None:
    _, follower = pair
    connection = http.client.HTTPConnection("127.0.0.1", follower.web_port, timeout=SECONDS)
    turn = {"owner": "long", "actions": [{"assert": record("long", "x" * 100_000)}]}
    for _ in range(3):
        assert ask(connection, "POST", TURNS, turn).status == 307
    assert ask(connection, "GET", "/v1/status").status == 200
    connection.close()


def test_the_epochs_of_a_durable_topic_are_told_and_a_topic_in_memory_is_sent_to_the_leader(
    pair: Pair,
) -> None:
    leader, follower = pair
    for n in range(4):
        assert leader.call("POST", "/v1/topics/t", {"items": [n]}).status == 200
    path, until = "/v1/topics/t/events", time.monotonic() + SECONDS
    while follower.get(path, after=0, upto=1).status != 200:
        assert time.monotonic() < until
    told = follower.get(path, after=0, upto=4)
    assert told.status == 200 and told.body == leader.get(path, after=0, upto=4).body
    answer = follower.call("GET", "/v1/topics/unknown/events")
    assert answer.problem()[:2] == (307, "elsewhere")
    assert answer.headers["location"] == f"http://127.0.0.1:{leader.web_port}/v1/topics/unknown/events"


async def test_a_websocket_observes_quietly_and_nothing_more(pair: Pair) -> None:
    leader, follower = pair
    leader.put(Record("socket", 1))
    rows(follower, "socket", leader.put(Record("socket", 2)))
    async with WebPeer(follower.web_port, JSON) as peer:
        await peer.greet()
        await peer.say(opening(1, Record("socket", capture("n"))), opening(2, quiet=False))
        found = [await peer.hear() for _ in range(2)]
    (error,) = [each for each in found if isinstance(each, p.Error)]
    assert error[1:] == ("elsewhere", error.text, f"http://127.0.0.1:{leader.web_port}") and error.stream == 2
    (values,) = [each for each in found if not isinstance(each, p.Error)]
    assert isinstance(values, p.Values) and values.stream == 1


def test_a_token_is_judged_before_an_address_is_told(tmp_path: Path) -> None:
    (tmp_path / "daemon.toml").write_text(CONFIG)
    config = ("--config", str(tmp_path / "daemon.toml"))
    leader = HttpDaemon(tmp_path / "data", *config)
    leader.start()
    follower = follower_of(leader, *config)
    wait_status(follower, 307, ADMIN)
    for token in ("", "a wrong one"):
        answer = follower.call("POST", TURNS, {}, token=token)
        assert answer.problem()[:2] == (401, "unauthorized")
        assert "location" not in answer.headers and str(leader.web_port).encode() not in answer.body
    assert follower.get("/v1/spaces/main/facts", token=READER, pattern="shown($n)").status == 200
    assert follower.get("/v1/spaces/main/facts", token=READER, pattern="hidden($n)").status == 403
    ends(follower, leader)


def test_no_leader_is_503_and_a_leader_without_http_421(tmp_path: Path) -> None:
    leader = DaemonProcess(tmp_path / "data")
    leader.start()
    follower = follower_of(leader)
    wait_status(follower, 421)
    answer = follower.call("POST", TURNS, {})
    _, code, text = answer.problem()
    assert code == "elsewhere" and leader.url in text and "no address for HTTP" in text
    assert json.loads(answer.body)["url"] == leader.url and "location" not in answer.headers
    leader.kill()
    wait_status(follower, 503)
    for answer in (follower.call("POST", TURNS, {}), follower.get("/v1/spaces/main/observe", pattern="_")):
        assert answer.problem()[:2] == (503, "no-leader")
        assert answer.headers["retry-after"] == "1" and "location" not in answer.headers
    assert follower.get("/v1/spaces/main/facts", pattern="_").status == 200
    ends(follower)
