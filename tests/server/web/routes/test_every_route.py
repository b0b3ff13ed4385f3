"""What every route has: headers that keep pages of others out, HEAD where an answer has an end, one guard."""

from __future__ import annotations

from typing import Final

import pytest

from dataspace import Record
from server.web.inspector.files import files
from server.web.routes.app import PAGES
from server.web.routes.table import DESCRIPTION
from tests.routes import ROUTES
from tests.server.web.routes.callers import HttpDaemon, with_query

QUERIES: Final[dict[str, dict[str, object]]] = {
    "facts": {"pattern": "any($n)"},
    "observe": {"pattern": "any($n)", "after": 0, "upto": 1},
    "log": {"pattern": "any($n)", "from": 1, "until": 1},
    "why": {"fact": "any(1)"},
    "why-not": {"pattern": "any(2)"},
    "events": {"after": 0, "upto": 1},
}
"""Parameters with which a route answers, and ends, by the last word of its path."""


def path_of(route: str) -> str:
    path = route.format(space="main", topic="any", group="any")
    return with_query(path, **QUERIES.get(path.rpartition("/")[2], {}))


READ: Final = [*[row.path for row in ROUTES if row.method == "GET"], DESCRIPTION, *PAGES, *files()]
STREAMS: Final = [row.path for row in ROUTES if row.method == "GET" and "HEAD" not in row.methods]


@pytest.fixture(scope="module", autouse=True)
def _something_is_there(daemon: HttpDaemon) -> None:
    daemon.put(Record("any", 1))
    daemon.call("POST", "/v1/topics/any", {"items": [1]}).json()
    daemon.call("POST", "/v1/spaces/main/groups/any/take", {"pattern": "any($n)", "wait": 0}).json()


def test_every_answer_says_that_no_other_page_may_show_it(daemon: HttpDaemon) -> None:
    asked = [("GET", path_of(each)) for each in READ]
    asked += [(row.method, path_of(row.path)) for row in ROUTES if row.method != "GET"]
    asked += [("GET", "/nowhere"), ("DELETE", "/"), ("GET", "/ws"), ("GET", "/v1/spaces/main/facts?x")]
    for method, path in asked:
        answer = daemon.call(method, path)
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", path
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
        assert len(answer.headers.get_all("content-security-policy") or ()) == 1, path


def test_head_is_answered_as_get_without_the_body_but_for_streams(daemon: HttpDaemon) -> None:
    assert {each.rpartition("/")[2] for each in STREAMS} == {"observe", "log", "events"}
    for each in READ:
        path = path_of(each)
        got, head = daemon.call("GET", path), daemon.call("HEAD", path)
        assert got.status == 200, (path, got.body)
        if each in STREAMS:
            assert (head.status, head.headers["allow"]) == (405, "GET"), path
            continue
        assert (head.status, head.body) == (200, b""), path
        if each not in (*PAGES, "/v1/status"):  # their figures change
            assert head.headers["content-length"] == str(len(got.body)), path
        assert {name.lower() for name in head.headers} == {name.lower() for name in got.headers}, path


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_makes_no_route_do_anything(daemon: HttpDaemon, site: str) -> None:
    before = daemon.get("/v1/status").json()["epoch"]
    for row in ROUTES:
        for mode, kind in (("navigate", "document"), ("navigate", "iframe"), ("no-cors", "image")):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": kind}
            answer = daemon.call(row.method, path_of(row.path), headers=headers)
            assert answer.problem()[:2] == (403, "not-allowed"), (row.path, mode)
    assert daemon.get("/v1/status").json()["epoch"] == before
    assert daemon.call("GET", path_of("/v1/spaces/{space}/observe")).status == 200
    assert daemon.get("/v1/status").json()["epoch"] > before  # it does state an interest, when it may


def test_an_escaped_slash_is_a_part_of_a_name(daemon: HttpDaemon) -> None:
    assert daemon.call("GET", "/v1/spaces/main%2ffacts?pattern=_").problem()[1] == "no-route"
    assert daemon.call("GET", "/v1/spaces/main%2ffacts/facts?pattern=_").problem()[1] == "no-space"
    for name in ("a%2fb", "a%252fb", "a%20b"):
        said = daemon.call("POST", f"/v1/topics/{name}", {"items": [1]}).json()
        assert said["topic"] == {"a%2fb": "a/b", "a%252fb": "a%2fb", "a%20b": "a b"}[name]


def test_no_route_takes_an_option_that_it_does_not_know(daemon: HttpDaemon) -> None:
    before = daemon.get("/v1/status").json()["epoch"]
    for row in ROUTES:
        path = path_of(row.path)
        answer = daemon.call(row.method, f"{path}{'&' if '?' in path else '?'}nonsense=1")
        assert answer.problem()[:2] == (400, "bad-request") and "'nonsense'" in answer.problem()[2], row.path
        if row.body is not None:
            refused = daemon.call(row.method, path, {"nonsense": 1}).problem()
            assert refused[:2] == (400, "bad-request") and "no member 'nonsense'" in refused[2], row.path
    assert daemon.get("/v1/status").json()["epoch"] == before
