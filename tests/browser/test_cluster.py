"""The inspector of any daemon of a cluster shows all of it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.pages import Tab, web
from tests.browser.test_inspector import BOTH_WIDTHS, go
from tests.ports import free_port
from tests.server.processes import DaemonProcess, running


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DaemonProcess]]:
    """Two daemons over one store; ``two`` has other limits."""
    monkeypatch.setenv("DATASPACE_SERVE_CLUSTER_LEASE", "5s")
    found = []
    for name, limits in (("one", ""), ("two", "limits.facts = 1000\n")):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n{limits}')
        listen = f"http:127.0.0.1:{free_port()}"
        found.append(DaemonProcess(postgres_url, "--listen", listen, "--config", str(path)))
    with running(*found):
        yield found


def row(page: Page, table: str, name: str) -> Locator:
    """The row of a daemon or a space."""
    return page.locator(f"#{table} .grid-row:visible[data-row-key={name}]")


@BOTH_WIDTHS
def test_a_leader_that_is_killed_and_its_successor_are_shown(
    pair: list[DaemonProcess], tabs: Callable[..., Tab], size: dict[str, int], scheme: str
) -> None:
    one, two = pair
    tab = tabs(viewport=size, color_scheme=scheme)
    page = go(tab, two, "cluster")
    expect(row(page, "members", "one")).to_contain_text("▲ other settings")
    expect(row(page, "members", "one")).to_contain_text("main")
    expect(row(page, "members", "two")).to_contain_text("● living")
    expect(row(page, "members", "two")).to_contain_text("this page")
    expect(row(page, "leaders", "main")).to_contain_text("one")
    expect(row(page, "members", "one").get_by_role("link")).to_have_attribute("href", web(one))
    tab.shot("two")
    one.kill()
    expect(row(page, "leaders", "main")).to_contain_text("two took over from one")
    expect(row(page, "leaders", "main")).to_contain_text("its lease had run out")
    expect(row(page, "members", "one")).to_contain_text("✗ gone")
    expect(row(page, "members", "two")).to_contain_text("main")
    tab.shot("one-is-gone")
    one.start()
    expect(row(page, "members", "one")).to_contain_text("▲ other settings")


def test_a_daemon_in_no_cluster_says_so(daemon: DaemonProcess, tabs: Callable[..., Tab]) -> None:
    page = go(tabs(), daemon, "cluster")
    expect(page.locator("#no-cluster")).to_contain_text("in no cluster")
    expect(page.locator("#members")).to_be_hidden()
