"""What a token may not do the page does not try: to look at it leaves nothing in the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

import dataspace
from dataspace import Record
from tests.browser.pages import Tab, web
from tests.server.processes import DaemonProcess

VIEWS: Final = (
    "overview",
    "facts",
    "interest",
    "rules",
    "topics",
    "actors",
    "sessions",
    "cluster",
    "console",
)
TOKENS: Final = {
    "operator": "inspect = true\nobserve = true\nadminister = true",
    "looker": 'inspect = true\nobserve = ["at(_, _)"]\ntopics = ["metals"]',
    "reader": 'observe = ["at(_, _)"]\nspaces = ["main"]',
    "blind": "inspect = true",
}
DRAWN: Final = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
ADMIN: Final = "the token of the administrator"


def secret(name: str) -> str:
    return f"a token of the {name}"


@pytest.fixture
def daemon(tmp_path: Path, spare: Callable[..., DaemonProcess]) -> DaemonProcess:
    """A daemon with tokens, rules, facts and topics, which keeps an audit log."""
    tables = [f'[[tokens]]\nname = "admin"\nsecret = "{ADMIN}"\n']
    tables += [
        f'[[tokens]]\nname = "{name}"\nsecret = "{secret(name)}"\n{rights}\n'
        for name, rights in TOKENS.items()
    ]
    config = tmp_path / "dataspace.toml"
    config.write_text("\n".join(tables))
    return spare("--config", str(config), "--audit", str(tmp_path / "audit.jsonl"))


@pytest.mark.parametrize("name", TOKENS)
def test_looking_leaves_no_line_in_the_audit_log(
    name: str, tmp_path: Path, daemon: DaemonProcess, tabs: Callable[..., Tab]
) -> None:
    def audited() -> list[str]:
        lines = (tmp_path / "audit.jsonl").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines if json.loads(line)["act"] != "started"]

    tab = tabs()
    page = tab.page
    page.add_init_script(f"sessionStorage.setItem('dataspace-token', {json.dumps(secret(name))})")
    with dataspace.connect_blocking(daemon.url, token=ADMIN, name="source") as source:
        source.assert_(Record("rule", "near", "near($a, $b) <- at($a, $p), at($b, $p), $a != $b."))
        source.assert_(Record("at", "Alice", "hall"))
        with source.publish("prices", retain=1 << 16) as prices, source.publish("metals", retain=1 << 16):
            prices.send("tin")
            for view in (*VIEWS, "overview"):
                page.goto(f"{web(daemon)}/#/{view}")
                expect(page.locator("#connection")).to_have_attribute("data-state", "up")
                expect(page.locator("#view")).to_have_attribute("data-view", view)
                page.evaluate(DRAWN)
                assert page.locator("#problem").is_hidden(), page.locator("#problem").inner_text()
                tab.shot(view)
                if view == "sessions" and "inspect" in TOKENS[name]:
                    page.locator(".grid-row:visible").filter(has_text="source").click()
                    expect(page.locator("#end")).to_have_count(int("administer" in TOKENS[name]))
            expect(page.locator("[data-tile=Facts] .figure")).to_have_text("2")
    assert audited() == []
