"""A headless Chromium, and daemons that its pages are of; `make browser` runs these tests.

They are apart from `make test`, since they need Chromium and an environment of their own.  Screenshots are
kept where ``BROWSER_SHOTS`` says, else in a new folder, which the end of the run names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import dataspace
from tests.browser.pages import SECONDS, Tab
from tests.ports import free_port
from tests.server.processes import DaemonProcess

NAMES = ("chromium", "chromium-browser", "google-chrome")
_SHOTS = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    named = os.environ.get("BROWSER_SHOTS")
    folder = Path(named) if named else Path(tempfile.mkdtemp(prefix="dataspace-browser-"))
    folder.mkdir(parents=True, exist_ok=True)
    config.stash[_SHOTS] = folder


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    folder = config.stash[_SHOTS]
    terminalreporter.write_line(f"{len(list(folder.glob('*.png')))} screenshots in {folder}")


@pytest.fixture(scope="session")
def executable() -> str:
    """The path of Chromium."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, f"no {', '.join(NAMES)} on the PATH: `make browser` installs it on Debian"
    return found


@pytest.fixture(scope="module")
def chromium(executable: str) -> Iterator[Browser]:
    """A Chromium for the tests of one module."""
    expect.set_options(timeout=SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable)
        yield browser
        browser.close()


@pytest.fixture
def tabs(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Tab]]:
    """Opens pages, each as a visitor of its own; what one logs as an error, and does not expect, fails the
    test."""
    folder = request.config.stash[_SHOTS]
    opened: list[Tab] = []

    def open_tab(**settings: Any) -> Tab:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 720}, **settings})
        context.set_default_timeout(SECONDS * 1000)
        tab = Tab(context.new_page(), folder, request.node.name)
        opened.append(tab)
        return tab

    yield open_tab
    for tab in opened:
        tab.shot("end")
        tab.page.context.close()
    for tab in opened:
        assert tab.errors == [], "what the page logged as an error"


@pytest.fixture
def page(tabs: Callable[..., Tab]) -> Page:
    """One page."""
    return tabs().page


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon for the tests of one module, which listens for HTTP too."""
    process = started(tmp_path_factory.mktemp("data"))
    yield process
    process.stop()


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Callable[..., DaemonProcess]]:
    """Starts daemons for one test; name it before ``tabs``, whose pages are closed before the daemons end."""
    processes: list[DaemonProcess] = []

    def start(*more: str) -> DaemonProcess:
        processes.append(started(tmp_path / f"data-{len(processes)}", *more))
        return processes[-1]

    yield start
    for process in processes:
        process.stop()


def started(data: Path, *more: str) -> DaemonProcess:
    """Starts a daemon whose ports stay the same when it is started again."""
    process = DaemonProcess(data, "--listen", f"http:127.0.0.1:{free_port()}", *more)
    process.start()
    return process


@pytest.fixture
def source(daemon: DaemonProcess) -> Iterator[dataspace.BlockingSpace]:
    """Another client of the daemon, whose facts end with the test."""
    with dataspace.connect_blocking(daemon.url, name="source") as space:
        yield space
