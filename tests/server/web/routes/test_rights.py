"""Tokens over HTTP: one judge for all doors, and no way around it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from dataspace.transport.tokens import narrow
from index.values.values import Map
from tests.server.web.routes.callers import SECONDS, EventSource, HttpDaemon, record

ADMIN: Final = "the secret of the administrator"
READER: Final = "the secret of a mere reader"
WRITER: Final = "the secret of a mere writer"

FEW: Final = "the secret of a reader with few streams"
PAGE: Final = "https://app.example"

CONFIG: Final = f"""
[web]
origins = ["{PAGE}"]

[[tokens]]
name = "few"
secret = "{FEW}"
observe = ["shown(_)"]
quota = {{ streams = 2 }}

[[tokens]]
name = "admin"
secret = "{ADMIN}"

[[tokens]]
name = "reader"
secret = "{READER}"
observe = ["shown(_)"]

[[tokens]]
name = "writer"
secret = "{WRITER}"
assert = ["shown(_)"]
send = ["said(_)"]
durable = ["writers"]
"""

FACTS: Final = "/v1/spaces/main/facts"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    top = tmp_path_factory.mktemp("rights")
    (top / "daemon.toml").write_text(CONFIG)
    process = HttpDaemon(top / "data", "--config", str(top / "daemon.toml"))
    process.start()
    body = {"owner": "admins", "actions": [{"assert": record("shown", 1)}, {"assert": record("hidden", 1)}]}
    assert process.call("POST", "/v1/spaces/main/turns", body, token=ADMIN).status == 200
    yield process
    assert process.stop() == 0


def test_a_token_sees_what_it_may(daemon: HttpDaemon) -> None:
    for token in (ADMIN, READER):
        assert daemon.get(FACTS, pattern="shown($x)", token=token).json()["rows"] == [{"x": 1}]
        with EventSource(daemon, "shown($x)", token=token) as source:
            assert source.next().data["added"] == [{"x": 1}]
        assert len(daemon.get("/v1/spaces/main/log", pattern="shown($x)", token=token).lines()) == 1


def test_a_token_or_space_longer_than_a_hello_may_have_is_refused_as_there(daemon: HttpDaemon) -> None:
    long, text = "x" * 8193, "must be text of at most 8192 characters"
    for path, token, name in (FACTS, long, "token"), (f"/v1/spaces/{long}/facts", ADMIN, "space"):
        problem = daemon.get(path, pattern="shown($x)", token=token).problem()
        assert problem == (400, "malformed", f"features.{name} {text}")


READS: Final = ("facts", "observe", "log")


@pytest.mark.parametrize("route", READS)
@pytest.mark.parametrize("pattern", ["hidden($x)", "$x", "_"])
def test_a_token_sees_nothing_else(daemon: HttpDaemon, route: str, pattern: str) -> None:
    problem = daemon.get(f"/v1/spaces/main/{route}", pattern=pattern, token=READER).problem()
    assert problem[:2] == (403, "not-allowed")


def test_a_tag_does_not_open_what_may_not_be_read(daemon: HttpDaemon) -> None:
    tag = daemon.get(FACTS, pattern="hidden($x)", token=ADMIN).headers["etag"]
    headers = {"If-None-Match": tag, "Authorization": f"Bearer {READER}"}
    assert daemon.call("GET", f"{FACTS}?pattern=hidden($x)", headers=headers).status == 403


GIVEN: Final = ("", "Bearer", "Bearer wrong and long enough", "Basic YTpi", f"Bearer {READER} x")
CLOSED: Final = (
    *[f"/v1/spaces/main/{route}?pattern=shown(_)" for route in (*READS, "why-not")],
    "/v1/spaces/main/why?fact=shown(_)",
    "/v1/spaces/main/rules",
    "/v1/spaces/main/explain",
    "/v1/status",
)


@pytest.mark.slow
def test_without_a_token_there_is_nothing(daemon: HttpDaemon) -> None:
    """All at once, since a token that is none is answered late."""

    def refused(path: str, given: str) -> None:
        answer = daemon.call("GET", path, headers={"Authorization": given} if given else {})
        assert answer.problem()[:2] == (401, "unauthorized"), (path, given)
        assert "Bearer TOKEN" in answer.problem()[2], (path, given)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert READER not in answer.body.decode()

    with ThreadPoolExecutor(len(GIVEN) * len(CLOSED)) as pool:
        asked = [pool.submit(refused, path, given) for path in CLOSED for given in GIVEN]
        for each in asked:
            each.result(SECONDS)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("turns", {"owner": "writers", "actions": [{"assert": record("hidden", 2)}]}),
        ("turns", {"owner": "writers", "actions": [{"send": record("shown", 2)}]}),
        ("turns", {"owner": "admins", "actions": [{"retract": record("shown", 1)}]}),
        ("turns", {"owner": "writers", "actions": [{"assert": record("rule", "r", "a() <- b().")}]}),
        ("messages", {"messages": [record("said", 1), record("shown", 1)]}),
    ],
)
def test_a_token_changes_nothing_else(daemon: HttpDaemon, path: str, body: object) -> None:
    before = daemon.get("/v1/status", token=ADMIN).json()["epoch"]
    answer = daemon.call("POST", f"/v1/spaces/main/{path}", body, token=WRITER)
    assert answer.problem()[:2] == (403, "not-allowed")
    assert daemon.get("/v1/status", token=ADMIN).json()["epoch"] == before


def test_a_token_changes_what_it_may(daemon: HttpDaemon) -> None:
    body = {"owner": "writers", "actions": [{"assert": record("shown", 2)}, {"send": record("said", 2)}]}
    assert daemon.call("POST", "/v1/spaces/main/turns", body, token=WRITER).status == 200
    body["actions"] = [{"retract": record("shown", 2)}]
    assert daemon.call("POST", "/v1/spaces/main/turns", body, token=WRITER).status == 200


def test_a_narrowed_token_is_what_it_was_narrowed_to(daemon: HttpDaemon) -> None:
    token = narrow(ADMIN, Map({"observe": ("hidden(_)",)}))
    assert daemon.get(FACTS, pattern="hidden($x)", token=token).json()["rows"] == [{"x": 1}]
    assert daemon.get(FACTS, pattern="shown($x)", token=token).status == 403


def test_status_shows_no_paths_to_who_may_not_inspect(daemon: HttpDaemon) -> None:
    assert "data" in daemon.get("/v1/status", token=ADMIN).json()
    assert "data" not in daemon.get("/v1/status", token=READER).json()
    for route in ("explain", "why?fact=shown(1)"):
        assert daemon.call("GET", f"/v1/spaces/main/{route}", token=READER).status == 403
    assert daemon.get("/v1/spaces/system/facts", pattern="$x", token=READER).status == 403


def test_leases_of_two_tokens_under_one_name_are_two(daemon: HttpDaemon) -> None:
    for token in (ADMIN, WRITER):
        body = {"owner": "lease:60000:same", "actions": [{"assert": record("shown", 3)}]}
        assert daemon.call("POST", "/v1/spaces/main/turns", body, token=token).status == 200
    body = {"owner": "lease:60000:same", "actions": [{"retract": record("shown", 3)}]}
    assert daemon.call("POST", "/v1/spaces/main/turns", body, token=WRITER).status == 200
    assert {"x": 3} in daemon.get(FACTS, pattern="shown($x)", token=READER).json()["rows"]


def test_the_description_needs_no_token(daemon: HttpDaemon) -> None:
    assert daemon.get("/v1/openapi.json").json()["openapi"] == "3.1.0"


def test_event_streams_count_as_streams_of_their_principal(daemon: HttpDaemon) -> None:
    sources = [EventSource(daemon, "shown($x)", token=FEW) for _ in range(2)]
    problem = daemon.get("/v1/spaces/main/observe", pattern="shown($x)", token=FEW).problem()
    assert problem[:2] == (429, "limit") and "quota.streams=2" in problem[2]
    sources[0].close()
    again = EventSource(daemon, "shown($x)", token=FEW)
    while again.status == 429:  # until the daemon has seen the other one vanish
        again.close()
        again = EventSource(daemon, "shown($x)", token=FEW)
    assert again.next().data["added"]
    again.close()
    sources[1].close()


# -- pages of other origins ---------------------------------------------------------------------------


def test_a_page_of_a_known_origin_may_read(daemon: HttpDaemon) -> None:
    wanted = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    flight = daemon.call("OPTIONS", "/v1/spaces/main/turns", headers=wanted)
    assert flight.status == 200 and flight.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in flight.headers["access-control-allow-headers"].lower()
    answer = daemon.call("GET", f"{FACTS}?pattern=shown($x)", token=READER, headers={"Origin": PAGE})
    assert answer.status == 200 and answer.headers["access-control-allow-origin"] == PAGE
    refused = daemon.call("GET", f"{FACTS}?pattern=shown($x)", headers={"Origin": PAGE})
    assert refused.problem()[0] == 401 and refused.headers["access-control-allow-origin"] == PAGE


def test_a_page_of_another_origin_may_not(daemon: HttpDaemon) -> None:
    answer = daemon.call("GET", "/v1/openapi.json", headers={"Origin": "https://evil.example"})
    assert answer.problem()[:2] == (403, "not-allowed")
    assert "access-control-allow-origin" not in answer.headers
