"""Whatever is asked is answered: by success, or by a problem that is not the daemon's."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from dataspace import Record
from server.web.routes.route import Row
from tests.routes import ROUTES
from tests.server.web.routes.callers import SECONDS, HttpDaemon, ask, with_query

WORDS: Final = (
    "owner client sequence by actions messages items time partition "
    "assert retract replace with send @ fields @int @float @map @time x"
)
KEYS: Final = st.sampled_from(WORDS.split())
ATOMS: Final = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1,
        1 << 64,
        1.5,
        float("nan"),
        "",
        "a",
        "$x",
        "p($x)",
        "lease:50:y",
        "lease::",
        "~c",
        " @ ",
    ]
)
JSON: Final = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
ACTIONS: Final = st.lists(st.dictionaries(KEYS, JSON, max_size=2) | JSON, max_size=3)
BODIES: Final = st.one_of(
    st.dictionaries(KEYS, JSON, max_size=4),
    st.fixed_dictionaries(
        {"owner": ATOMS, "actions": ACTIONS}, optional={"by": ATOMS, "client": ATOMS, "sequence": ATOMS}
    ),
    st.fixed_dictionaries({"messages": st.lists(JSON, max_size=3)}),
    st.fixed_dictionaries({"items": st.lists(JSON, max_size=3)}, optional={"time": JSON, "partition": ATOMS}),
    JSON,
    st.binary(max_size=20),
)
TEXTS: Final = st.one_of(
    st.sampled_from(
        [
            "p($x)",
            "_",
            "$x:int",
            "lit(1)",
            "[",
            "0",
            "1",
            "2",
            "-1",
            "true",
            "false",
            "wait",
            "drop",
            "9" * 30,
        ]
    ),
    st.text(max_size=8),
)


@pytest.fixture(scope="module")
def line(daemon: HttpDaemon) -> Iterator[http.client.HTTPConnection]:
    """One connection for all requests: none of them may end it."""
    daemon.put(Record("any", 1))
    daemon.call("POST", "/v1/topics/any", {"items": [1]}).json()
    connection = http.client.HTTPConnection("127.0.0.1", daemon.web_port, timeout=SECONDS)
    yield connection
    connection.close()


QUICK: list[Row] = [each for each in ROUTES if each.method == "POST" and not each.path.endswith("/take")]
"""Routes that answer at once: taking a job waits for one."""


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(body=BODIES, row=st.sampled_from(QUICK))
def test_any_body_is_answered(line: http.client.HTTPConnection, body: Any, row: Row) -> None:
    path = row.path.format(space="main", topic="any", group="any")
    answer = ask(line, "POST", path, body, headers={"Content-Type": "application/json"})
    assert answer.status == 200 or answer.problem()[0] in range(400, 500), (path, body)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), row=st.sampled_from([each for each in ROUTES if each.method == "GET"]))
def test_any_parameters_are_answered(line: http.client.HTTPConnection, data: st.DataObject, row: Row) -> None:
    names = [
        each.name for each in row.parameters if each.place == "query" and each.name not in ("upto", "after")
    ]
    query = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, TEXTS)))
    if row.path.endswith(("observe", "events")):  # which would go on
        query |= {"upto": "1", "after": "0"}
    path = with_query(row.path.format(space="main", topic="any", group="any"), **query)
    answer = ask(line, "GET", path)
    assert answer.status in (200, 204) or answer.problem()[0] in range(400, 500), path
