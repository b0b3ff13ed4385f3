"""``dataspace inspect``: it finds the page, or says how to have one."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from dataspace.transport.addresses import Address, parse_url
from index.values.values import Value
from server.cli.once import inspector
from server.cli.once.inspector import NoPage
from tests import warm
from tests.server.web.routes.callers import HttpDaemon

SECRET: Final = "a-secret-of-sixteen"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    process = HttpDaemon(tmp_path_factory.mktemp("inspect") / "data")
    process.start()
    yield process
    assert process.stop() == 0


def run(*words: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if name not in inspector.SCREENS}
    return warm.run("inspect", *words, env=own)


def test_it_prints_where_the_page_is_which_is_where_the_daemon_said(daemon: HttpDaemon) -> None:
    page = f"http://127.0.0.1:{daemon.web_port}/"
    done = run("--url", daemon.url, "--no-open")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{page}\n", "")
    assert daemon.process.stdout is not None  # a pipe
    assert daemon.process.stdout.readline() == f"dataspace: inspector at {page}\n"


def test_without_a_screen_it_says_that_no_browser_was_opened(daemon: HttpDaemon) -> None:
    done = run("--url", f"http://127.0.0.1:{daemon.web_port}", "--space", "a b")
    assert done.returncode == 0
    assert done.stdout == f"http://127.0.0.1:{daemon.web_port}/#/overview?space=a+b\n"
    assert done.stderr == "dataspace: no browser was found here; open the address in one\n"


def status(*addresses: str) -> dict[Value, Value]:
    return {"addresses": addresses}


def test_a_daemon_without_a_page_is_said_how_to_have_one() -> None:
    with pytest.raises(NoPage, match=r"not listen for HTTP, only on tcp:127\.0\.0\.1:7377; start it with: "):
        inspector._pages(status("tcp:127.0.0.1:7377"), Address())
    with pytest.raises(NoPage, match=re.escape("dataspace inspect --url http://HOST:PORT")):
        inspector._pages({}, Address())


@pytest.mark.parametrize(
    ("listens", "reached", "page"),
    [
        ("http:127.0.0.1:7378", "unix:///run/d", "http://127.0.0.1:7378/"),
        ("http:0.0.0.0:7378", "unix:///run/d", "http://127.0.0.1:7378/"),
        ("http:0.0.0.0:7378", "tls://data.example:7377", "http://data.example:7378/"),
        ("https:[::]:443", "tls://[fd00::1]:7377", "https://[fd00::1]:443/"),
    ],
)
def test_a_page_on_all_addresses_is_at_that_by_which_the_daemon_was_reached(
    listens: str, reached: str, page: str
) -> None:
    assert inspector._pages(status("tcp:127.0.0.1:7377", listens), parse_url(reached)) == [page]
