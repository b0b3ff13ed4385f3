"""Jobs of a group over HTTP: taken by a long poll, done once, given back; others' deliveries are refused."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import dataspace
from dataspace import Map, Record
from server.groups.consuming import GROUP_OPTIONS
from server.groups.routes import NAMED, OPTIONS
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
    with dataspace.connect_blocking(daemon.url) as space:
        said: Any = space.request("groups", Map({"group": "work", "out": True}))
    assert all(re.fullmatch(r"request \d+\.\d+( of .+)?", each[4]) for each in said[0]["deliveries"])
    seen = daemon.get(GROUP, most="2").json()
    assert (seen["undone"], seen["out"], len(seen["jobs"]), seen["next_due"]) == (3, 3, 2, None)
    shown = {name: seen["jobs"][1][name] for name in ("state", "kind", "captures", "attempts")}
    assert shown == {"state": "out", "kind": "fact", "captures": {"n": 2, "what": "stay"}, "attempts": 0}
    assert daemon.get("/v1/spaces/main/groups/none").problem()[:2] == (404, "no-group")
    first, second, third = [each["delivery"] for each in jobs]
    assert daemon.call("POST", f"{GROUP}/done", {"deliveries": [first, third]}).json()["epoch"] > 0
    refused = daemon.call("POST", f"{GROUP}/done", {"deliveries": [second, third]})
    assert refused.problem()[:2] == (409, "not-yours")
    assert daemon.call("POST", f"{GROUP}/again", {"deliveries": [second], "blame": False}).json() == {}
    (again,) = take(daemon, 5)
    assert (again["captures"]["n"], again["attempt"]) == (2, 1) and again["delivery"] != second
    daemon.call("POST", f"{GROUP}/done", {"deliveries": [again["delivery"]]}).json()
    assert take(daemon, 1, wait=0) == []


def test_a_job_is_done_with_a_turn_or_neither_happens(daemon: HttpDaemon) -> None:
    take(daemon, 1, wait=0)
    daemon.put(Record("errand", 7, "go"))
    (job,) = take(daemon, 1)
    path, turn = "/v1/spaces/main/turns", {"owner": "results", "actions": [{"assert": record("result", 7)}]}
    done = {"done": {"work": [job["delivery"]]}}
    epoch = daemon.call("POST", path, turn | done | {"client": "c", "sequence": 1}).json()["epoch"]
    assert daemon.call("POST", path, turn | done | {"client": "c", "sequence": 1}).json()["epoch"] == epoch
    late = {"owner": "results", "actions": [{"assert": record("result", 8)}]}
    refused = daemon.call("POST", path, late | done)
    assert refused.problem()[:2] == (409, "not-yours")
    assert json.loads(refused.body)["lost"] == [f"{job['epoch']}.{job['position']}"]
    none: list[Any] = [{"work": []}, {"work": ["1.2"]}, ["work"], {"work": "1.2.3"}]
    for wrong in none:
        assert daemon.call("POST", path, late | {"done": wrong}).problem()[0] == 400
    assert daemon.call("POST", path, late | {"done": {"none": ["1.2.3"]}}).problem()[0] == 404
    assert daemon.call("GET", "/v1/spaces/main/facts?pattern=result($n)").json()["rows"] == [{"n": 7}]


def test_what_is_no_delivery_or_no_group_is_refused(daemon: HttpDaemon) -> None:
    for path, body, status in (
        (f"{GROUP}/done", {"deliveries": ["5.1"]}, 400),
        (f"{GROUP}/done", {"deliveries": []}, 400),
        ("/v1/spaces/main/groups/none/take", {}, 404),
        ("/v1/spaces/main/groups/none/done", {"deliveries": ["5.1.7"]}, 404),
    ):
        assert daemon.call("POST", path, body).problem()[0] == status, path


def test_items_of_a_topic_are_taken_and_done(daemon: HttpDaemon) -> None:
    path = "/v1/spaces/main/groups/items"
    with dataspace.connect_blocking(daemon.url) as space:
        with space.publish("t", durable=True) as publication:
            publication.send("before")
        asked = {"topic": "t", "most": 2}
        assert daemon.call("POST", f"{path}/take", asked | {"wait": 0}).json()["jobs"] == []
        with space.publish("t", durable=True) as publication:
            publication.send({"n": 1}, Record("job", 2))
    jobs = daemon.call("POST", f"{path}/take", asked).json()["jobs"]
    while len(jobs) < 2:
        jobs += daemon.call("POST", f"{path}/take", asked).json()["jobs"]
    assert [(each["captures"], each["kind"], each["topic_time"], each["crashed"]) for each in jobs] == [
        ({"item": {"n": 1}}, "item", 1, ""),
        ({"item": record("job", 2)}, "item", 1, ""),
    ]
    done = [each["delivery"] for each in jobs]
    assert daemon.call("POST", f"{path}/done", {"deliveries": done}).json()["epoch"] > 0
    refused = daemon.call("POST", f"{path}/take", {"topic": "none", "wait": 0})
    assert refused.problem()[1] == "group-differs"


def test_the_body_that_makes_a_group_has_its_options(daemon: HttpDaemon) -> None:
    path = "/v1/spaces/main/groups/chores/take"
    daemon.put(Record("chore", "a", 1), Record("chore", "b", 2))
    options = {"start": "held", "key": "who", "ack_within": 60, "attempts": 2}
    for wrong in (
        {"attempts": -1},
        {"ack_within": 0},
        {"start": "later"},
        {"start": {"@": "at", "fields": []}},
        {"key": 5},
        {"key": "where"},
        {"in_flight": 3},
        {"topic": "t", "start": "held"},
    ):
        body = {"pattern": "chore($who, $n)", "wait": 0} | options | wrong
        assert daemon.call("POST", path, body).problem()[:2] == (400, "bad-request"), wrong
    made = {"pattern": "chore($who, $n)", "most": 5} | options
    answer = daemon.call("POST", path, made).json()
    jobs = answer["jobs"]
    while len(jobs) < 2:
        jobs += daemon.call("POST", path, {"most": 5}).json()["jobs"]
    assert answer["ack_within"] == 60
    assert [job["captures"] for job in jobs] == [{"who": "a", "n": 1}, {"who": "b", "n": 2}]
    with dataspace.connect_blocking(daemon.url) as space:
        (group,) = cast("tuple[Any]", space.request("groups", Map({"group": "chores"})))
    has = {name: group["options"][name] for name in ("key", "ack_within", "attempts")}
    assert has == {"key": "who", "ack_within": 60.0, "attempts": 2}
    assert daemon.call("POST", path, made | {"wait": 0}).json()["jobs"] == []
    for other in ({"key": "n"}, {"ack_within": 5}, {"attempts": 3}):
        assert daemon.call("POST", path, {"wait": 0} | other).problem()[:2] == (409, "group-differs"), other


def test_a_body_has_every_option_of_a_group() -> None:
    assert sorted(NAMED.get(name, name) for name in OPTIONS) == list(GROUP_OPTIONS)
