"""The FastAPI recipe under uvicorn: pages of two processes see one another, and one is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import Tab
from tests.server.processes import DaemonProcess

APP = "fastapi_presence:app"
RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
LOST = "connection lost: load this page again"


class Server:
    """The application in a process of its own; ``url`` is where its page is."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", APP, "--app-dir", str(RECIPES), "--port", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"DATASPACE_URL": daemon.url, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.said: list[str] = []
        assert self.process.stderr is not None  # a pipe, as asked for
        for line in self.process.stderr:
            self.said.append(line)
            _, running, where = line.partition("Uvicorn running on ")
            if running:
                self.url = where.split()[0]
                return
        raise AssertionError(f"the application did not start: {''.join(self.said)}")

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Ends it in good order if it still runs, and reads what it has said."""
        self.process.terminate()
        try:
            _, rest = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, rest = self.process.communicate()
            rest += "ERROR: it did not end"
        self.said.append(rest)


@pytest.fixture
def start(daemon: DaemonProcess) -> Iterator[Callable[[], Server]]:
    """Starts processes for one test; name it before ``tabs``, whose pages are closed before."""
    servers: list[Server] = []

    def started() -> Server:
        servers.append(Server(daemon))
        return servers[-1]

    yield started
    for each in servers:
        if each.process.returncode is None:
            each.end()
    assert [line for each in servers for line in each.said if "ERROR" in line or "Traceback" in line] == []


def visit(tab: Tab, server: Server, who: str) -> Page:
    """Opens the page of one process, and answers what it asks."""
    tab.page.once("dialog", lambda dialog: dialog.accept(who))
    tab.page.goto(server.url)
    return tab.page


def test_pages_of_two_processes_see_one_another_come_and_go(
    start: Callable[[], Server], tabs: Callable[..., Tab]
) -> None:
    one, two = start(), start()
    ann = visit(tabs(), one, "Ann").locator("#there")
    expect(ann).to_have_text("Ann")
    ben_tab = tabs()
    ben = visit(ben_tab, two, "Ben <i>").locator("#there")
    for each in (ann, ben):
        expect(each).to_have_text("Ann\nBen <i>")

    eve = visit(tabs(), one, "Eve")
    for each in (ann, ben):
        expect(each).to_have_text("Ann\nBen <i>\nEve")
    eve.goto("about:blank")  # leaving needs no word of the page
    for each in (ann, ben):
        expect(each).to_have_text("Ann\nBen <i>")

    two.kill()
    expect(ben).to_have_text(LOST)
    expect(ann).to_have_text("Ann")

    visit(ben_tab, one, "Ben")
    for each in (ann, ben):
        expect(each).to_have_text("Ann\nBen")
