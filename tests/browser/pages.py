"""A page in a tab, what it logs, and how it looks; and where a daemon serves pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

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


def until(page: Page, condition: str, argument: Any = None) -> None:
    """Waits until a condition of JavaScript, of ``it``, the argument, holds in the page.

    Playwright's ``wait_for_function`` makes its function anew each time it looks, which the policy of the
    daemon's pages forbids for all times but the first.
    """
    holds = """async ([it, milliseconds]) => {
      for (const end = performance.now() + milliseconds; performance.now() < end;) {
        if (CONDITION) return true;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return false;
    }""".replace("CONDITION", condition)
    assert page.evaluate(holds, [argument, SECONDS * 1000]), f"not within {SECONDS} s: {condition}"


def web(daemon: DaemonProcess) -> str:
    """Returns the address of a daemon's HTTP listener."""
    _, _, listener = daemon.more[1].partition("http:")
    return f"http://{listener}"
