"""Jobs of a group over HTTP: taken by a long poll, done once, given back; others' deliveries are refused."""

from __future__ import annotations

from typing import Any

from dataspace import Record
from tests.server.web.routes.callers import HttpDaemon, record

GROUP = "/v1/spaces/main/groups/work"
PATTERN = "errand($n, $what)"


def take(daemon: HttpDaemon, most: int, wait: int = 20) -> list[dict[str, Any]]:
    answer = daemon.call("POST", f"{GROUP}/take", {"pattern": PATTERN, "most": most, "wait": wait})
    jobs = answer.json()["jobs"]
    assert isinstance(jobs, list)
    return jobs


def test_jobs_are_taken_done_and_given_back(daemon: HttpDaemon) -> None:
    assert take(daemon, 1, wait=0) == []
    daemon.put(Record("errand", 1, "go"), Record("errand", 2, "stay"))
    daemon.turn({"send": record("errand", 3, "say")}).json()
    jobs = take(daemon, 2)
    while len(jobs) < 3:
        jobs += take(daemon, 3)
    assert [each["captures"] for each in jobs] == [
        {"n": 1, "what": "go"},
        {"n": 2, "what": "stay"},
        {"n": 3, "what": "say"},
    ]
    assert [each["kind"] for each in jobs] == ["fact", "fact", "message"]
    first, second, third = [each["delivery"] for each in jobs]
    assert daemon.call("POST", f"{GROUP}/done", {"deliveries": [first, third]}).json()["epoch"] > 0
    refused = daemon.call("POST", f"{GROUP}/done", {"deliveries": [second, third]})
    assert refused.problem()[:2] == (409, "not-yours")
    assert daemon.call("POST", f"{GROUP}/again", {"deliveries": [second], "blame": False}).json() == {}
    (again,) = take(daemon, 5)
    assert (again["captures"]["n"], again["attempt"]) == (2, 1) and again["delivery"] != second
    daemon.call("POST", f"{GROUP}/done", {"deliveries": [again["delivery"]]}).json()
    assert take(daemon, 1, wait=0) == []


def test_what_is_no_delivery_or_no_group_is_refused(daemon: HttpDaemon) -> None:
    for path, body, status in (
        (f"{GROUP}/done", {"deliveries": ["5.1"]}, 400),
        (f"{GROUP}/done", {"deliveries": []}, 400),
        ("/v1/spaces/main/groups/none/take", {}, 404),
        ("/v1/spaces/main/groups/none/done", {"deliveries": ["5.1.7"]}, 404),
    ):
        assert daemon.call("POST", path, body).problem()[0] == status, path
