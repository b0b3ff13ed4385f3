"""A page in a tab, what it logs, and how it looks; and where a daemon serves pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from playwright.sync_api import ConsoleMessage, Page

from tests.server.processes import DaemonProcess

SECONDS: Final = 20
"""After which what a page does not show is a failure."""


class Tab:
    """A page; ``errors`` is what it has logged as errors, but for what is ``expected``."""

    def __init__(self, page: Page, folder: Path, name: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.expected: list[str] = []
        """Beginnings of what Chromium itself logs where a daemon is away, or refuses."""
        self._folder = folder
        self._name = re.sub(r"\W+", "-", name.removeprefix("test_")).strip("-")
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(tuple(self.expected)):
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def shot(self, what: str) -> Path:
        """Keeps a picture of what is in sight; returns its path."""
        path = self._folder / f"{self._name}-{what}.png"
        self.page.screenshot(path=path)
        return path


def web(daemon: DaemonProcess) -> str:
    """Returns the address of a daemon's HTTP listener."""
    _, _, listener = daemon.more[1].partition("http:")
    return f"http://{listener}"
