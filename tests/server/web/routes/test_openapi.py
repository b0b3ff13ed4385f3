"""The description and the routes are one: each path, parameter, body and code of one is in the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

import dataspace
import server
from server.sessions.state import DaemonState
from server.web.inspector.files import files
from server.web.routes import problems
from server.web.routes.app import PAGES, application, description
from server.web.routes.route import Row
from server.web.routes.table import DESCRIPTION
from tests.routes import ROUTES

SAID: Final = description(ROUTES)


class Nobody:
    """A daemon of which nothing is asked: routes are made without it."""

    def leader_web(self, _space: str) -> str:
        return ""


async def no_page(_path: str, _headers: object) -> NoReturn:
    raise AssertionError("no page was asked for")


def served() -> set[tuple[str, str]]:
    app = application(cast("DaemonState", Nobody()), ROUTES, no_page)
    assert isinstance(app, Starlette)
    routes = [each for each in app.routes if isinstance(each, Route)]
    assert len(routes) == len(app.routes)
    return {
        (method.lower(), each.path) for each in routes for method in each.methods or () if method != "HEAD"
    }


def test_each_route_is_described_and_each_description_is_served() -> None:
    ours = {(method, path) for path, some in SAID["paths"].items() for method in some}
    assert ours | {("get", path) for path in (*PAGES, *files())} == served()


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_each_parameter_is_described_and_each_description_is_read(row: Row) -> None:
    operation = SAID["paths"][row.path][row.method.lower()]
    told = {(each["in"], each["name"], each["required"]) for each in operation["parameters"]}
    assert told == {(each.place, each.name, each.needed) for each in row.parameters}
    in_path = re.findall(r"\{(\w+)\}", row.path)
    assert sorted(in_path) == [name for place, name, _ in sorted(told) if place == "path"]
    assert ("requestBody" in operation) == (row.method == "POST")


def references(said: Any) -> set[str]:
    if isinstance(said, dict):
        own = {said["$ref"]} if "$ref" in said else set()
        return own.union(*[references(each) for each in said.values()])
    return set[str]().union(*[references(each) for each in said]) if isinstance(said, list) else set()


def test_nothing_is_referred_to_that_is_not_there() -> None:
    there = {f"#/components/schemas/{name}" for name in SAID["components"]["schemas"]}
    assert references(SAID["paths"]) == there


def test_each_code_of_the_wire_has_a_status() -> None:
    text = (Path(dataspace.__file__).parent / "WIRE.md").read_text().partition("\n## 4. Codes")[2]
    codes = {
        code
        for line in text.partition("\n## 5.")[0].splitlines()
        if line.startswith("| `")
        for code in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    }
    assert codes and codes == set(problems.STATUS)
    assert not codes & set(problems.ALSO)


def test_the_page_shows_each_route_and_each_code_that_only_http_has() -> None:
    page = (Path(server.__file__).parent / "HTTP.md").read_text()
    assert not [row.path for row in ROUTES if f"`{row.method} {row.path}`" not in page]
    assert not [code for code in problems.ALSO if f"`{code}`" not in page]
    assert f"`GET {DESCRIPTION}`" in page
    assert not [each.name for row in ROUTES for each in row.parameters if f"`{each.name}`" not in page]
