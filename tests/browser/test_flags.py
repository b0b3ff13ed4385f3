"""The recipe of flags: two pages of another server show and switch the same, over a killed daemon."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import dataspace
from tests.browser.conftest import started
from tests.browser.pages import Tab, until, web
from tests.recipes.programs import RECIPES, STATIC

PAGE = "flags.html"
AWAY = ["WebSocket connection to", "Failed to load resource"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A web server with the page beside the files of the client."""
    shutil.copytree(STATIC, tmp_path / "site")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_all_pages_show_and_switch_the_same_flags(
    site: ThreadingHTTPServer, tmp_path: Path, tabs: Callable[..., Tab]
) -> None:
    origin = f"http://127.0.0.1:{site.server_port}"
    config = tmp_path / "dataspace.toml"
    config.write_text(f'[web]\norigins = ["{origin}"]\n')
    daemon = started(tmp_path / "data", "--config", str(config))
    try:
        text = (RECIPES / PAGE).read_text().replace("127.0.0.1:7378", web(daemon).removeprefix("http://"))
        (tmp_path / "site" / PAGE).write_text(text)
        with dataspace.connect_blocking(daemon.url, owner="flags") as space:
            space.put("flag", "dark mode", False)
            space.put("flag", "search", True)
        pages = [tabs(), tabs()]
        for tab in pages:
            tab.expected += AWAY
            tab.page.goto(f"{origin}/{PAGE}")
        one, other = [tab.page for tab in pages]
        for page in (one, other):
            until(page, "document.querySelectorAll('input').length === 2")
        one.get_by_label("dark mode").check()
        until(other, "[...document.querySelectorAll('input')].every(({ checked }) => checked)")
        daemon.kill()
        daemon.start()
        other.get_by_label("search").uncheck()  # waits until the page is back
        until(one, "!document.querySelectorAll('input')[1].checked")
        assert one.locator("label").all_inner_texts() == ["dark mode", "search"], "rows stay in their place"
        with dataspace.connect_blocking(daemon.url) as space:
            assert sorted(space.matches("flag($name, $on)")) == [("dark mode", True), ("search", False)]
    finally:
        daemon.stop()
