"""The inspector's page: its files, their headers, and that they ask nothing of other hosts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import server
from server.web.inspector.files import CLIENT, HOME, INSPECTOR, files
from tests.server.web.routes.callers import HttpDaemon

INSIDE: Final = Path(server.__file__).parent / "web"
PATHS: Final = sorted(files())


@pytest.mark.parametrize("path", PATHS)
def test_each_file_is_served_with_its_headers_and_once_only(daemon: HttpDaemon, path: str) -> None:
    answer = daemon.get(path)
    assert answer.status == 200 and answer.body
    assert answer.headers["content-type"].partition(";")[0] in (
        "text/html",
        "text/css",
        "text/javascript",
        "image/svg+xml",
    )
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    tag = answer.headers["etag"]
    again = daemon.call("GET", path, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert daemon.call("GET", path, headers={"If-None-Match": '"other"'}).status == 200


def test_the_page_is_at_the_root_and_its_client_is_that_of_the_package(daemon: HttpDaemon) -> None:
    assert b'src="inspect/main.js"' in daemon.get(HOME).body
    for file in (INSIDE / "static").glob("*.js"):
        assert daemon.get(f"{CLIENT}{file.name}").body == file.read_bytes()


@pytest.mark.parametrize(
    "path", ["/inspect/", "/inspect/none.js", "/inspect/../door.py", "/inspect/%2e%2e/door.py", "/static/"]
)
def test_what_is_no_file_of_the_page_is_not_there(daemon: HttpDaemon, path: str) -> None:
    status, code, _ = daemon.get(path).problem()
    assert (status, code) == (404, "no-route")


def test_each_file_that_another_loads_is_served() -> None:
    paths = set(files())
    for file in (INSIDE / "inspector").rglob("*.js"):
        here = Path(INSPECTOR) / file.relative_to(INSIDE / "inspector")
        for found in re.findall(r'(?:from|import) "(\.[^"]+)"', file.read_text()):
            parts: list[str] = []
            for part in (here.parent / found).parts:
                if part == "..":
                    parts.pop()
                else:
                    parts.append(part)
            assert str(Path(*parts)) in paths, f"{file.name} imports {found}"
    for found in re.findall(r'(?:src|href)="([^"#]+)"', (INSIDE / "inspector" / "index.html").read_text()):
        assert f"/{found}" in paths


def test_nothing_is_inline_and_nothing_is_of_another_host() -> None:
    files = [each for each in (INSIDE / "inspector").rglob("*.*") if each.suffix in (".html", ".css", ".js")]
    assert len(files) > 10
    for file in files:
        said = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:https?|wss?)://|innerHTML|outerHTML|insertAdjacentHTML|\beval\(", said), (
            file
        )
        if file.suffix == ".html":
            assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", said)
