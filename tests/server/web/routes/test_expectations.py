"""A turn over HTTP happens only if what it expects holds; headers that expect something are not ignored."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from dataspace import Record
from tests.routes import ROUTES
from tests.server.web.routes.callers import HttpDaemon, record
from tests.server.web.routes.test_every_route import path_of


def configured(daemon: HttpDaemon, what: str) -> list[Any]:
    rows = daemon.get("/v1/spaces/main/facts", pattern=f'config("{what}", $value)').json()["rows"]
    return [row["value"] for row in rows]


def change(daemon: HttpDaemon, what: str, value: object, *expect: object, **more: Any) -> Any:
    by = f'config("{what}", _)'
    return daemon.turn(
        {"assert": {"@": "config", "fields": [what, value]}}, by=by, expect=expect, owner="ops", **more
    )


def test_a_value_is_set_only_if_it_is_still_the_old_one(daemon: HttpDaemon) -> None:
    daemon.put(Record("config", "speed", 7), owner="ops")
    old: dict[str, Any] = {"exactly": 'config("speed", $v)', "rows": [{"v": 7}]}
    assert change(daemon, "speed", 8, old).status == 200
    failed = change(daemon, "speed", 9, old)
    assert failed.problem()[:2] == (412, "expectation") and "expected" in failed.problem()[2]
    said = json.loads(failed.body)
    assert (said["expectation"], said["rows"], said["count"]) == (1, [{"v": 8}], 1)
    assert configured(daemon, "speed") == [8]
    assert change(daemon, "speed", 9, {**old, "rows": [[8]]}).status == 200, "rows in their order"


def test_each_kind_of_expectation_is_judged(daemon: HttpDaemon) -> None:
    absent = {"absent": 'config("kinds", _)'}
    epoch = change(daemon, "kinds", 1, absent).json()["epoch"]
    assert change(daemon, "kinds", 2, absent).problem()[0] == 412
    since = {"unchanged": 'config("kinds", _)', "since": epoch}
    assert change(daemon, "kinds", 2, since, {"absent": "nothing(_)"}).status == 200
    failed = json.loads(change(daemon, "kinds", 3, {"absent": "nothing(_)"}, since).body)
    assert (failed["expectation"], failed["count"], failed["epoch"]) == (2, 2, epoch + 1)
    assert change(daemon, "kinds", 3).status == 200, "no expectation is one that holds"
    there = {"exactly": 'config("kinds", _)', "rows": [[]]}
    assert change(daemon, "kinds", 4, there).status == 200


def test_a_refused_turn_may_come_again_under_its_number(daemon: HttpDaemon) -> None:
    expected = {"absent": 'config("again", 1)'}
    number = {"client": "again", "sequence": 1}
    daemon.put(Record("config", "again", 1), owner="else")
    assert change(daemon, "again", 2, expected, **number).problem()[0] == 412
    daemon.turn({"retract": record("config", "again", 1)}, owner="else").json()
    epoch = change(daemon, "again", 2, expected, **number).json()["epoch"]
    daemon.put(Record("config", "again", 1), owner="else")
    assert change(daemon, "again", 2, expected, **number).json()["epoch"] == epoch, "it was applied before"


@pytest.mark.slow
def test_one_of_many_wins(daemon: HttpDaemon) -> None:
    """Sixteen clients add one to a number eight times each; nothing is lost."""
    daemon.put(Record("config", "sum", 0), owner="ops")

    def add() -> None:
        for _ in range(8):
            while True:
                (now,) = configured(daemon, "sum")
                old = {"exactly": 'config("sum", $v)', "rows": [[now]]}
                if change(daemon, "sum", now + 1, old).status == 200:
                    break

    threads = [threading.Thread(target=add) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert configured(daemon, "sum") == [128]


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        ({}, "expect must be an array, got an object"),
        ([7], "expect[0] must be one of"),
        ([{"present": "a(_)"}], "expect[0] must be one of"),
        ([{"absent": "a(_)", "since": 1}], "expect[0] must be one of"),
        ([{"absent": "a("}], "expect[0].absent: expected"),
        ([{"absent": 1}], "expect[0].absent must be text"),
        ([{"exactly": "a($n)"}], "expect[0] must be one of"),
        ([{"exactly": "a($n)", "rows": 1}], "expect[0].rows must be an array"),
        ([{"exactly": "a($n)", "rows": [1]}], "expect[0].rows[0] must be an object or an array"),
        ([{"exactly": "a($n)", "rows": [{"m": 1}]}], "expect[0].rows[0] must have 'n', got 'm'"),
        ([{"unchanged": "a(_)", "since": -1}], "expect[0].since must be a number"),
        ([{"absent": "a(_)"}] * 257, "expect must have 0 to 256 elements"),
    ],
    ids=lambda each: f"{each!s:.60}",
)
def test_an_expectation_that_is_none_changes_nothing(daemon: HttpDaemon, expect: object, text: str) -> None:
    before = daemon.get("/v1/status").json()["epoch"]
    problem = daemon.turn({"assert": record("config", "none", 1)}, expect=expect).problem()
    assert problem[:2] == (400, "bad-request") and text in problem[2], problem
    assert daemon.get("/v1/status").json()["epoch"] == before


@pytest.mark.parametrize("header", ["If-Match", "If-Unmodified-Since", "If-None-Match", "If-Modified-Since"])
def test_no_route_ignores_a_precondition(daemon: HttpDaemon, header: str) -> None:
    before = daemon.get("/v1/status").json()["epoch"]
    for row in ROUTES:
        is_known = header in [each.name for each in row.parameters]
        if is_known or (row.method == "GET" and header in ("If-None-Match", "If-Modified-Since")):
            continue
        answer = daemon.call(row.method, path_of(row.path), headers={header: '"3-83f3ebbe"'})
        assert answer.problem()[:2] == (400, "bad-request") and "unchanged" in answer.problem()[2], row.path
    assert daemon.get("/v1/status").json()["epoch"] == before


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip", "nonsense"])
def test_no_route_reads_a_body_in_a_coding_that_it_does_not_know(daemon: HttpDaemon, coding: str) -> None:
    before = daemon.get("/v1/status").json()["epoch"]
    for row in ROUTES:
        if row.body is None:
            continue
        headers = {"Content-Type": "application/json", "Content-Encoding": coding}
        answer = daemon.call(row.method, path_of(row.path), b"{}", headers=headers)
        assert answer.problem()[:2] == (415, "media-type"), row.path
        assert answer.headers["accept-encoding"] == "identity"
    assert daemon.get("/v1/status").json()["epoch"] == before
