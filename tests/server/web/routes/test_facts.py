"""The state of a pattern over HTTP, and what is wrong with requests for it."""

from __future__ import annotations

import http.client
import json

import pytest

from dataspace import Record
from index.values.jsons import from_json
from tests.server.web.routes.callers import HttpDaemon, ask, record

FACTS = "/v1/spaces/main/facts"


def test_the_state_is_rows_of_captures_of_one_epoch(daemon: HttpDaemon) -> None:
    epoch = daemon.put(Record("here", "Ann", 1), Record("here", "Ben", 2.0))
    answer = daemon.get(FACTS, pattern="here($who, _)")
    said = answer.json()
    assert said.pop("time").endswith("Z")
    assert sorted(said.pop("rows"), key=str) == [{"who": "Ann"}, {"who": "Ben"}]
    assert said == {"space": "main", "epoch": epoch, "captures": ["who"]}
    assert answer.headers["etag"].startswith(f'"{epoch}-')
    assert b'"rows":[{"0":2.0}]' in daemon.get(FACTS, pattern="here(_, $:float)").body


def test_every_value_comes_as_its_documented_json(daemon: HttpDaemon) -> None:
    values = [
        1,
        1.0,
        True,
        None,
        "é\n",
        b"\0\xff",
        1 << 70,
        float("nan"),
        (1, (2,)),
        Record("r", Record("s")),
    ]
    daemon.put(*[Record("any", at, value) for at, value in enumerate(values)])
    rows = daemon.get(FACTS, pattern="any($at, $value)").json()["rows"]
    got = {row["at"]: from_json(row["value"]) for row in rows}
    assert repr([got[at] for at in range(len(values))]) == repr(values)


def test_a_state_that_is_known_is_not_sent_again(daemon: HttpDaemon) -> None:
    daemon.put(Record("known", 1))
    tag = daemon.get(FACTS, pattern="known($n)").headers["etag"]
    for given in (tag, f'"x", W/{tag}'):
        again = daemon.call("GET", f"{FACTS}?pattern=known($n)", headers={"If-None-Match": given})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    epoch = daemon.put(Record("known", 2))
    newer = daemon.call("GET", f"{FACTS}?pattern=known($n)", headers={"If-None-Match": tag})
    assert newer.json()["epoch"] == epoch and len(newer.json()["rows"]) == 2


def test_a_known_state_is_no_answer_to_a_pattern_that_may_not_be_read(daemon: HttpDaemon) -> None:
    tag = daemon.get(FACTS, pattern="known($n)").headers["etag"]
    answer = daemon.call("GET", f"{FACTS}?pattern=known($n", headers={"If-None-Match": tag})
    assert answer.problem()[:2] == (400, "bad-request")


def test_the_past_is_there_by_its_epoch(daemon: HttpDaemon) -> None:
    first = daemon.put(Record("past", 1))
    daemon.put(Record("past", 2))
    then = daemon.get(FACTS, pattern="past($n)", as_of=first)
    assert then.json()["epoch"] == first and then.json()["rows"] == [{"n": 1}]
    tag = then.headers["etag"]
    again = daemon.call("GET", f"{FACTS}?pattern=past($n)&as_of={first}", headers={"If-None-Match": tag})
    assert again.status == 304
    ahead = daemon.get(FACTS, pattern="past($n)", as_of=1 << 40).problem()
    assert ahead[:2] == (404, "epoch-ahead") and "the newest is" in ahead[2]


@pytest.mark.slow
def test_a_large_state_comes_whole(daemon: HttpDaemon) -> None:
    facts = [Record("many", at, "x" * 20) for at in range(5_000)]
    daemon.put(*facts)
    answer = daemon.get(FACTS, pattern="many($n, $)")
    rows = answer.json()["rows"]
    assert answer.headers["transfer-encoding"] == "chunked"
    assert sorted(row["n"] for row in rows) == list(range(5_000))
    assert rows[0].keys() == {"n", "1"}


def test_the_daemon_describes_itself_in_the_space_system(daemon: HttpDaemon) -> None:
    answer = daemon.get("/v1/spaces/system/facts", pattern="session($n, $space, $name, $who)")
    assert {
        "space": "main",
        "name": "http GET /v1/spaces/system/facts",
        "who": "address:127.0.0.1",
    }.items() <= answer.json()["rows"][-1].items()
    assert "etag" not in answer.headers  # its epochs are not those of any log


def test_status_has_the_counts_of_a_space(daemon: HttpDaemon) -> None:
    said = daemon.get("/v1/status").json()
    assert said["space"] == "main" and said["facts"] > 0 and len(said["addresses"]) == 2
    assert daemon.get("/v1/status", space="none").problem()[:2] == (404, "no-space")


@pytest.mark.parametrize(
    ("path", "status", "code", "text"),
    [
        (f"{FACTS}?pattern=a(", 400, "bad-request", "found the end of the text"),
        (f"{FACTS}?pattern=$x:nothing", 400, "bad-request", "nothing"),
        (f"{FACTS}", 400, "bad-request", "pattern is needed"),
        (f"{FACTS}?pattern=_&pattern=_", 400, "bad-request", "2 times, once is allowed"),
        (f"{FACTS}?patern=_", 400, "bad-request", "no parameter 'patern', known are pattern, as_of"),
        (f"{FACTS}?pattern=_&token=secret", 400, "bad-request", "no parameter 'token'"),
        (
            f"{FACTS}?pattern=_&as_of=x",
            400,
            "bad-request",
            "as_of must be a number from 0 to 2^63-1, got 'x'",
        ),
        (f"{FACTS}?pattern=_&as_of={1 << 63}", 400, "bad-request", "as_of must be a number"),
        (f"{FACTS}?pattern={'[' * 5000}", 400, "bad-request", "64 levels"),
        ("/v1/spaces/none/facts?pattern=_", 404, "no-space", "no space named 'none', there is 'main'"),
        ("/v1/spaces/system/facts?pattern=_&as_of=1", 410, "epoch-gone", "keeps no log"),
        ("/v1/none", 404, "no-route", "see /v1/openapi.json"),
    ],
)
def test_a_request_that_makes_no_sense_says_why(
    daemon: HttpDaemon, path: str, status: int, code: str, text: str
) -> None:
    problem = daemon.call("GET", path).problem()
    assert problem[:2] == (status, code) and text in problem[2]


def test_a_method_that_there_is_not_names_those_that_there_are(daemon: HttpDaemon) -> None:
    answer = daemon.call("DELETE", FACTS)
    assert answer.problem()[:2] == (405, "no-method") and answer.headers["allow"] == "GET, HEAD"


def test_one_connection_serves_many_requests_and_nothing_stays(daemon: HttpDaemon) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.web_port, timeout=30)
    for at in range(5):
        assert ask(connection, "GET", f"{FACTS}?pattern=known($n)").status == 200
        assert ask(connection, "GET", f"{FACTS}?pattern=(").status == 400
        body = {"messages": [record("said", at)]}
        assert ask(connection, "POST", "/v1/spaces/main/messages", body).status == 200
    said = json.loads(ask(connection, "GET", "/v1/status").body)
    assert said["streams"] == 0 and said["patterns"] == 0 and said["sessions"] <= 2
    connection.close()
