"""The inspector for readers of screens: axe-core finds nothing, in any view, width or theme."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

import dataspace
from dataspace import Record
from tests.browser.pages import Tab
from tests.browser.test_inspector import LAPTOP, PHONE, go
from tests.server.processes import DaemonProcess

VIEWS: Final = (
    "overview",
    "facts",
    "interest",
    "rules",
    "actors",
    "topics",
    "sessions",
    "cluster",
    "console",
)

AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  const places = (nodes) => nodes.map(({ target }) => target.join(" ")).join(", ");
  return violations.map(({ id, nodes }) => `${id}: ${places(nodes)}`);
}"""


def axe() -> str:
    """The text of axe-core."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None and spec.submodule_search_locations is not None
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text()


def fill(space: dataspace.BlockingSpace) -> None:
    """Something to see in each view."""
    space.assert_(Record("rule", "near", "near($a, $b) <- at($a, $p), at($b, $p), $a != $b."))
    for who, where in (("Alice", "hall"), ("Ben", "hall"), ("Cleo", "attic")):
        space.assert_(Record("at", who, where))


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_has_a_violation(view: str, daemon: DaemonProcess, tabs: Callable[..., Tab]) -> None:
    found: dict[str, Any] = {}
    with dataspace.connect_blocking(daemon.url, name="a client") as space, space.publish("readings") as topic:
        topic.send(1)
        topic.flush()
        fill(space)
        observation = space.observe("at($who, $where)")
        for width, size in (("laptop", LAPTOP), ("phone", PHONE)):
            for scheme in ("light", "dark"):
                tab = tabs(viewport=size, color_scheme=scheme, bypass_csp=True)
                page = go(tab, daemon, view)
                page.wait_for_timeout(300)
                if view == "facts":
                    page.fill("#pattern", "at($who, $where)")
                    page.press("#pattern", "Enter")
                    page.locator(".grid-row:visible", has_text="Alice").click()
                page.evaluate(axe())
                found |= {f"{width} {scheme}: {each}": True for each in page.evaluate(AXE)}
                tab.shot(f"{view}-{width}-{scheme}")
        observation.close()
    assert list(found) == []
