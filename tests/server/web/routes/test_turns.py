"""Turns over HTTP: all or nothing, once, for the owner that is named."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dataspace import Record
from tests.server.web.routes.callers import SECONDS, EventSource, HttpDaemon, raw, record

TURNS = "/v1/spaces/main/turns"
MESSAGES = "/v1/spaces/main/messages"
TOPIC = "/v1/topics/heavy"


def rows(daemon: HttpDaemon, pattern: str) -> list[Any]:
    found = daemon.get("/v1/spaces/main/facts", pattern=pattern).json()["rows"]
    assert isinstance(found, list)
    return sorted(found, key=str)


def test_the_actions_of_a_turn_are_one_epoch(daemon: HttpDaemon) -> None:
    daemon.put(Record("seat", 1, "free"), Record("seat", 2, "free"))
    epoch = daemon.turn(
        {"retract": record("seat", 1, "free")},
        {"replace": record("seat", 2, "free"), "with": record("seat", 2, "taken")},
        {"assert": record("seat", 3, "free")},
        {"send": record("seat", 0, "said")},
    ).json()["epoch"]
    line = daemon.get("/v1/spaces/main/log", pattern="seat($n, $is)", from_=epoch).lines()
    assert [each["epoch"] for each in line] == [epoch]
    assert line[0]["added"] == [{"n": 2, "is": "taken"}, {"n": 3, "is": "free"}]
    assert line[0]["messages"] == [{"n": 0, "is": "said"}]
    assert sorted(line[0]["removed"], key=str) == [{"n": 1, "is": "free"}, {"n": 2, "is": "free"}]


def test_a_fact_takes_the_place_of_those_with_the_same_captures(daemon: HttpDaemon) -> None:
    for degrees in (20.5, 21.0):
        daemon.turn({"assert": record("degrees", "hall", degrees)}, by="degrees($room, _)").json()
    assert rows(daemon, "degrees($room, $is)") == [{"room": "hall", "is": 21.0}]


def test_a_turn_that_is_sent_again_is_answered_and_not_applied(daemon: HttpDaemon) -> None:
    turn: dict[str, Any] = {"client": "meter", "sequence": 7, "owner": "meters"}
    first = daemon.turn({"assert": record("once", 1)}, {"send": record("once-said", 1)}, **turn).json()
    daemon.turn({"retract": record("once", 1)}, **{**turn, "sequence": 8}).json()
    again = daemon.turn({"assert": record("once", 1)}, {"send": record("once-said", 1)}, **turn).json()
    assert again == first and rows(daemon, "once($n)") == []
    said = daemon.get("/v1/spaces/main/log", pattern="once-said($n)").lines()
    assert [each["epoch"] for each in said] == [first["epoch"]]
    skipped = daemon.turn({"assert": record("once", 2)}, **{**turn, "sequence": 3}).problem()
    assert skipped[:2] == (409, "old-sequence") or skipped[:2] == (409, "not-applied")


@pytest.mark.slow
def test_many_retries_at_once_are_one_turn(daemon: HttpDaemon) -> None:
    epochs: list[int] = []
    turn: dict[str, Any] = {"client": "hasty", "sequence": 1, "owner": "hasty"}
    body = [{"send": record("hasty", 1)}]

    def send() -> None:
        epochs.append(daemon.turn(*body, **turn).json()["epoch"])

    threads = [threading.Thread(target=send, daemon=True) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)
    assert len(epochs) == 8 and len(set(epochs)) == 1
    assert len(daemon.get("/v1/spaces/main/log", pattern="hasty($n)").lines()) == 1


@pytest.mark.slow
def test_a_retry_after_a_crash_is_the_same_turn(tmp_path_factory: pytest.TempPathFactory) -> None:
    daemon = HttpDaemon(tmp_path_factory.mktemp("crash") / "data")
    daemon.start(fault="publish-after-commit:1")
    turn: dict[str, Any] = {"client": "meter", "sequence": 1, "owner": "meters"}
    with pytest.raises(OSError):  # it is killed before it can answer
        daemon.turn({"send": record("crash", 1)}, **turn)
    daemon.wait()
    daemon.start()
    try:
        epoch = daemon.turn({"send": record("crash", 1)}, **turn).json()["epoch"]
        assert [each["epoch"] for each in daemon.get("/v1/spaces/main/log", pattern="crash($n)").lines()] == [
            epoch
        ]
    finally:
        daemon.stop()


def test_facts_of_a_lease_end_with_it(daemon: HttpDaemon) -> None:
    with EventSource(daemon, "leased($n)") as events:
        assert events.next().data["added"] == []
        daemon.put(Record("leased", 1), owner="lease:100:short")
        assert events.next().data["added"] == [{"n": 1}]
        assert events.next().data["removed"] == [{"n": 1}]


def test_messages_are_one_turn_and_leave_nothing(daemon: HttpDaemon) -> None:
    with EventSource(daemon, "note($n)", snapshot=False, quiet=True) as events:
        epoch = daemon.call("POST", MESSAGES, {"messages": [record("note", 1), record("note", 2)]}).json()[
            "epoch"
        ]
        event = events.next()
    assert (event.number, event.data["messages"]) == (epoch, [{"n": 1}, {"n": 2}])
    assert rows(daemon, "note($n)") == []


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "text"),
    [
        (TURNS, b"{", 400, "malformed", "no JSON"),
        (TURNS, b"[]", 400, "bad-request", "must be an object, got an array"),
        (TURNS, {"actions": [{"assert": 1}]}, 400, "bad-request", "owner must be text, got nothing"),
        (TURNS, {"owner": "", "actions": [{"assert": 1}]}, 400, "bad-request", "owner must name"),
        (TURNS, {"owner": "o"}, 400, "bad-request", "actions must be an array, got nothing"),
        (TURNS, {"owner": "o", "actions": []}, 400, "bad-request", "actions must have 1 to"),
        (TURNS, b'{"owner": "o", "owner": "p", "actions": []}', 400, "malformed", "the key 'owner' twice"),
        (TURNS, b'\xef\xbb\xbf{"owner": "o"}', 400, "malformed", "begins with a byte order mark"),
        (TURNS, '{"owner": "o"}'.encode("utf-16"), 400, "malformed", "begins with the mark of UTF-16"),
        (TURNS, '{"owner": "o"}'.encode("utf-16-le"), 400, "malformed", "as UTF-16 does"),
        (
            TURNS,
            {"owner": "o", "actions": [{"assert": 'present("Ann")'}]},
            400,
            "bad-request",
            'for the record give {"@": "present", "fields": ["Ann"]}',
        ),
        (
            TURNS,
            {"owner": "o", "actions": [{"replace": 1, "with": "present($who)"}]},
            400,
            "bad-request",
            "actions[0].with: 'present($who)' is text, though it reads as a record",
        ),
        (MESSAGES, {"messages": ["rang(1)"]}, 400, "bad-request", "messages[0]: 'rang(1)' is text"),
        (TURNS, {"owner": "o", "actions": [{"put": 1}]}, 400, "bad-request", "actions[0] must be one of"),
        (TURNS, {"owner": "o", "actions": [{"replace": 1}]}, 400, "bad-request", "actions[0] must be one of"),
        (TURNS, {"owner": "o", "actions": [{"assert": {"@": 1}}]}, 400, "bad-request", "actions[0].assert: "),
        (TURNS, {"owner": "o", "actions": [{"assert": 1}], "x": 1}, 400, "bad-request", "no member 'x'"),
        (
            TURNS,
            {"owner": "o", "client": "c", "actions": [{"assert": 1}]},
            400,
            "bad-request",
            "belong together",
        ),
        (
            TURNS,
            {"owner": "o", "client": "c", "sequence": -1, "actions": [{"assert": 1}]},
            400,
            "bad-request",
            "sequence must be a number",
        ),
        (TURNS, {"owner": "lease:x:y", "actions": [{"assert": 1}]}, 400, "bad-request", "lease"),
        (TURNS, {"owner": "o", "by": "a(", "actions": [{"assert": 1}]}, 400, "bad-request", "expected"),
        (MESSAGES, {"messages": 1}, 400, "bad-request", "messages must be an array, got a number"),
        (TURNS, {"owner": "o", "actions": [{"send": 1}] * 16_385}, 400, "bad-request", "1 to 16384 elements"),
        (
            TURNS,
            b'{"owner":"o","actions":[' + b"{}," * 300_000 + b"1]}",
            413,
            "limit",
            "elements, limit 262144",
        ),
        (MESSAGES, b"[" + b"{}," * 300_000 + b"1]", 413, "limit", "elements, limit 262144"),
        (TOPIC, b"[" + b"{}," * 300_000 + b"1]", 413, "limit", "elements, limit 262144"),
        (MESSAGES, {"messages": [1] * 20_000}, 400, "bad-request", "1 to 16384 elements, got 20000"),
        ("/v1/spaces/system/turns", {"owner": "o", "actions": [{"assert": 1}]}, 403, "read-only", "observed"),
        ("/v1/spaces/system/messages", {"messages": [1]}, 403, "read-only", "observed"),
        ("/v1/spaces/none/turns", {"owner": "o", "actions": [{"assert": 1}]}, 404, "no-space", "none"),
    ],
    ids=lambda each: f"{each!s:.80}",
)
def test_a_body_that_makes_no_sense_changes_nothing(
    daemon: HttpDaemon, path: str, body: object, status: int, code: str, text: str
) -> None:
    before = daemon.get("/v1/status").json()["epoch"]
    problem = daemon.call("POST", path, body, headers={"Content-Type": "application/json"}).problem()
    assert problem[:2] == (status, code) and text in problem[2], problem
    assert daemon.get("/v1/status").json()["epoch"] == before


def test_an_integer_of_any_size_is_kept(daemon: HttpDaemon) -> None:
    body = {"owner": "o", "actions": [{"assert": record("huge", 10**30)}]}
    daemon.call("POST", TURNS, body).json()
    assert rows(daemon, "huge($n)") == [{"n": {"@int": str(10**30)}}]


def test_a_value_that_is_nested_too_deeply_is_refused(daemon: HttpDaemon) -> None:
    for depth in (60, 900, 5000):
        body = b'{"owner":"o","actions":[{"assert":' + b"[" * depth + b"]" * depth + b"}]}"
        problem = daemon.call("POST", TURNS, body, headers={"Content-Type": "application/json"}).problem()
        assert problem[0] == 400


def test_a_page_of_another_origin_cannot_send_a_body_unasked(daemon: HttpDaemon) -> None:
    body = b'{"messages":[1]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = daemon.call("POST", MESSAGES, body, headers={"Content-Type": kind})
        assert answer.problem()[:2] == (415, "media-type")


@pytest.mark.slow
@pytest.mark.parametrize("stated", [True, False])
def test_a_huge_body_is_refused_with_the_limit(daemon: HttpDaemon, stated: bool) -> None:
    size = 6 << 20
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % MESSAGES.encode()
    head += b"Content-Length: %d\r\n\r\n" % size if stated else b"Transfer-Encoding: chunked\r\n\r\n"
    connected = raw(daemon, head)
    piece = b"1," * (32 << 10)
    if not stated:
        piece = b"10000\r\n" + piece + b"\r\n"
    try:
        for _ in range(size // (64 << 10)):
            connected.sendall(piece)
    except OSError:
        pass  # it need not read on
    said = connected.makefile("rb").read()
    connected.close()
    assert said.startswith(b"HTTP/1.1 413 ") and b'"code":' in said and b"bytes=4194304" in said
    assert daemon.get("/v1/status").status == 200
