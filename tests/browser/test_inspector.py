"""The inspector's page, used as a person would: by what is on it, waiting for what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import dataspace
from dataspace import Record
from tests.browser.pages import Tab, web
from tests.server.processes import DaemonProcess

AWAY = ["WebSocket connection to", "Failed to load resource"]
TOKEN = "0123456789abcdef"
LAPTOP = {"width": 1280, "height": 720}
PHONE = {"width": 390, "height": 844}
BOTH_WIDTHS = pytest.mark.parametrize(
    ("size", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")], ids=["laptop", "phone"]
)


def go(tab: Tab, daemon: DaemonProcess, where: str) -> Page:
    """Opens a view of the inspector, and waits until it is connected."""
    page = tab.page
    page.goto(f"{web(daemon)}/#/{where}")
    expect(page.locator("#connection")).to_have_attribute("data-state", "up")
    return page


def look_for(page: Page, pattern: str) -> None:
    """Types a pattern into the view of facts."""
    page.fill("#pattern", pattern)
    page.press("#pattern", "Enter")


def rows(page: Page) -> list[str]:
    """The facts in sight, each as the text of its first cell."""
    texts: list[str] = page.locator(".grid-row:visible [role=gridcell]:first-child").all_inner_texts()
    return texts


def changes(seen: Any) -> tuple[Any, Any, Any]:
    """What the next epoch of an observation adds, sends and removes."""
    epoch = seen.next_epoch()
    return [*epoch.added], [*epoch.messages], [*epoch.removed]


def test_facts_come_and_go_while_one_looks(
    daemon: DaemonProcess, source: dataspace.BlockingSpace, tabs: Callable[..., Tab]
) -> None:
    tab = tabs()
    page = go(tab, daemon, "facts")
    look_for(page, "present($who, $where)")
    expect(page.locator("#facts-said")).to_contain_text("0 facts, live")
    alice = source.assert_(Record("present", "Alice", "hall"))
    source.assert_(Record("present", "Ben", "garden"))
    expect(page.locator("#facts-said")).to_contain_text("2 facts, live")
    assert sorted(rows(page)) == ['"Alice"', '"Ben"']
    expect(page.locator("[role=columnheader]").filter(has_text="who")).to_be_visible()
    tab.shot("live")
    source.retract(alice)
    expect(page.locator("#facts-said")).to_contain_text("1 fact, live")
    assert rows(page) == ['"Ben"']
    for _ in range(200):  # faster than anybody reads
        cleo = source.assert_(Record("present", "Cleo", "attic"))
        source.retract(cleo)
    source.assert_(Record("present", "Dora", "attic"))
    expect(page.locator(".grid-row:visible", has_text="Dora")).to_be_visible()
    expect(page.locator("#facts-said")).to_contain_text("2 facts, live")
    expect(page.locator("#facts-said")).to_contain_text("epochs merged")
    assert sorted(rows(page)) == ['"Ben"', '"Dora"']
    page.fill("#pattern", "present($who")
    expect(page.locator("#pattern")).to_have_attribute("aria-invalid", "true")


def test_the_past_is_at_the_slider(
    daemon: DaemonProcess, source: dataspace.BlockingSpace, tabs: Callable[..., Tab]
) -> None:
    claim = source.assert_(Record("step", 1))
    first = claim.epoch
    for n in range(2, 12):
        claim = source.replace(claim, Record("step", n))
    tab = tabs()
    page = go(tab, daemon, "facts")
    look_for(page, "step($n)")
    expect(page.locator("#facts-said")).to_contain_text("1 fact, live")
    assert rows(page) == ["11"]
    page.focus("#slider")
    for n in (10, 9, 8):
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".grid-row:visible [role=gridcell]:first-child")).to_have_text([str(n)])
    expect(page.locator("#when")).to_contain_text("epoch")
    tab.shot("past")
    page.fill("#epoch", str(first))
    page.press("#epoch", "Enter")
    expect(page.locator("#facts-said")).to_contain_text(f"1 fact at epoch {first}")
    assert rows(page) == ["1"]
    page.click("#after")
    expect(page.locator(".grid-row:visible [role=gridcell]:first-child")).to_have_text(["2"])
    page.fill("#epoch", str(claim.epoch))
    page.press("#epoch", "Enter")
    for n in (10, 9, 8):  # the change before, each time
        page.click("#before")
        expect(page.locator(".grid-row:visible [role=gridcell]:first-child")).to_have_text([str(n)])
    source.replace(claim, Record("step", 12))
    page.click("#live")
    assert page.evaluate("document.querySelector('#slider').value === document.querySelector('#slider').max")
    expect(page.locator(".grid-row:visible [role=gridcell]:first-child")).to_have_text(["12"])


def test_why_and_why_not(
    daemon: DaemonProcess, source: dataspace.BlockingSpace, tabs: Callable[..., Tab]
) -> None:
    source.assert_(Record("rule", "near", "near($a, $b) <- at($a, $p), at($b, $p), $a != $b."))
    for who, where in (("Alice", "hall"), ("Ben", "hall"), ("Cleo", "attic")):
        source.assert_(Record("at", who, where))
    tab = tabs()
    page = go(tab, daemon, "rules")
    page.fill("#about", 'near("Alice", "Ben")')
    page.click("#why")
    expect(page.locator("#answer")).to_have_attribute("data-answer", "why")
    expect(page.locator("#answer [data-fact]")).to_have_count(3)
    tab.shot("why")
    page.fill("#about", 'near("Alice", "Cleo")')
    page.click("#why-not")
    expect(page.locator("#answer")).to_have_attribute("data-answer", "why-not")
    expect(page.locator("#answer [data-rule]")).to_contain_text(["near"])
    expect(page.locator("#rule-graph svg")).to_be_visible()
    tab.shot("why-not")


def test_a_session_is_ended_from_the_page(daemon: DaemonProcess, tabs: Callable[..., Tab]) -> None:
    tab = tabs()
    with dataspace.connect_blocking(daemon.url, name="intruder") as intruder:
        intruder.assert_(Record("here", "intruder"))
        page = go(tab, daemon, "sessions")
        page.locator(".grid-row:visible").filter(has_text="intruder").click()
        page.click("#end")
        tab.shot("asked")
        page.click("#end-yes")
        expect(page.locator("#status")).to_contain_text("ended session")
        expect(page.locator(".grid-row:visible").filter(has_text="intruder")).to_have_count(0)
        with pytest.raises(dataspace.DataspaceError, match="ended"):
            intruder.assert_(Record("here", "again"))


def test_the_console_asserts_retracts_and_sends(
    daemon: DaemonProcess, source: dataspace.BlockingSpace, tabs: Callable[..., Tab]
) -> None:
    tab = tabs()
    page = go(tab, daemon, "console")
    with source.observe('said("console", $n)') as seen:
        assert changes(seen) == ([], [], [])
        page.fill("#value", 'said("console", 1)')
        page.click("#assert")
        assert changes(seen) == ([(1,)], [], [])
        expect(page.locator("#claims li")).to_contain_text(['said("console", 1)'])
        page.fill("#value", 'said("console", 2)')
        page.click("#send")
        assert changes(seen) == ([], [(2,)], [])
        page.fill("#value", 'said("console", 1)')
        page.click("#retract")
        assert changes(seen) == ([], [], [(1,)])
    expect(page.locator("#lines [data-done=done]")).to_have_count(3)
    page.click("#retract")
    expect(page.locator("#lines [data-done=refused]")).to_have_count(1)
    page.fill("#value", "said(")
    expect(page.locator("#value")).to_have_attribute("aria-invalid", "true")
    tab.shot("console")


def test_the_page_recovers_from_a_killed_daemon_without_a_gap(
    spare: Callable[..., DaemonProcess], tabs: Callable[..., Tab]
) -> None:
    daemon = spare()
    tab = tabs()
    tab.expected += AWAY
    page = go(tab, daemon, "facts")
    look_for(page, "kept($n)")
    expect(page.locator("#facts-said")).to_contain_text("0 facts, live")
    with dataspace.connect_blocking(daemon.url, owner="keeper") as source:
        for n in range(3):
            source.assert_(Record("kept", n))
    expect(page.locator("#facts-said")).to_contain_text("3 facts, live")
    daemon.kill()
    expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
    tab.shot("lost")
    assert sorted(rows(page)) == ["0", "1", "2"], "what was known stays in sight"
    daemon.start()
    with dataspace.connect_blocking(daemon.url, owner="keeper") as source:
        for n in range(3, 6):
            source.assert_(Record("kept", n))
    expect(page.locator("#connection")).to_have_attribute("data-state", "up")
    expect(page.locator("#facts-said")).to_contain_text("6 facts, live")
    assert sorted(rows(page)) == ["0", "1", "2", "3", "4", "5"]
    expect(page.locator("#status")).to_contain_text("reconnected")


def test_a_wrong_token_is_asked_for_again(
    tmp_path: Path, spare: Callable[..., DaemonProcess], tabs: Callable[..., Tab]
) -> None:
    config = tmp_path / "dataspace.toml"
    config.write_text(
        f'[[tokens]]\nname = "admin"\nsecret = "{TOKEN}"\nadminister = true\ninspect = true\nobserve = true\n'
    )
    daemon = spare("--config", str(config))
    tab = tabs()
    tab.page.goto(web(daemon))
    expect(tab.page.locator("#token")).to_be_visible()
    tab.page.fill("#token-input", "a wrong one of sixteen")
    tab.page.press("#token-input", "Enter")
    expect(tab.page.locator("#token .bad")).to_contain_text("token")
    tab.shot("wrong")
    tab.page.fill("#token-input", TOKEN)
    tab.page.press("#token-input", "Enter")
    expect(tab.page.locator("#connection")).to_have_attribute("data-state", "up")
    assert TOKEN not in tab.page.url
    tab.page.reload()
    expect(tab.page.locator("#connection")).to_have_attribute("data-state", "up")


def test_a_hundred_thousand_facts_are_a_bounded_page(
    spare: Callable[..., DaemonProcess], tabs: Callable[..., Tab]
) -> None:
    daemon = spare()
    with dataspace.connect_blocking(daemon.url) as source:
        for begin in range(0, 100_000, 10_000):
            with source.turn() as draft:
                for n in range(begin, begin + 10_000):
                    draft.assert_(Record("many", n))
        tab = tabs()
        page = go(tab, daemon, "facts")
        look_for(page, "many($n)")
        expect(page.locator("#facts-said")).to_contain_text(re.compile(r"\b100\W000 facts, live"))
        assert page.locator(".grid-row").count() < 100, "elements for the rows in sight alone"
        source.assert_(Record("many", "one more"))
        expect(page.locator("#facts-said")).to_contain_text(re.compile(r"\b100\W001 facts, live"))
        tab.shot("many")
        page.locator(".grid").press("End")
        look_for(page, "many($n:str)")
        expect(page.locator("#facts-said")).to_contain_text("1 fact, live")
        assert rows(page) == ['"one more"']


@BOTH_WIDTHS
def test_a_long_rule_can_be_read_to_its_end(
    daemon: DaemonProcess,
    source: dataspace.BlockingSpace,
    tabs: Callable[..., Tab],
    size: dict[str, int],
    scheme: str,
) -> None:
    """Its row ends in an ellipsis; picked, the rule is below the table, whole."""
    long = "twins($a, $b) <- " + ", ".join(f"same_in_field_{n}($a, $b)" for n in range(12)) + ", $a != $b."
    source.assert_(Record("rule", "twins", long))
    tab = tabs(viewport=size, color_scheme=scheme)
    page = go(tab, daemon, "rules")
    grid = page.get_by_role("grid", name="What each rule costs")
    cell = grid.get_by_role("gridcell").filter(has_text="$a != $b")
    expect(cell).to_contain_text("same_in_field_11")
    tab.shot("begins")
    assert cell.evaluate("cell => getComputedStyle(cell).textOverflow") == "ellipsis"
    cell.click()
    whole = page.locator("#whole-rule")
    expect(whole).to_have_text(long)
    assert whole.evaluate("each => each.scrollWidth <= each.clientWidth"), "the rule is cut"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    tab.shot("whole")


VIEWS = ("overview", "facts", "interest", "rules", "topics", "actors", "sessions", "cluster", "console")


@BOTH_WIDTHS
def test_every_view_fits(
    daemon: DaemonProcess,
    source: dataspace.BlockingSpace,
    tabs: Callable[..., Tab],
    size: dict[str, int],
    scheme: str,
) -> None:
    source.assert_(Record("rule", "near", "near($a, $b) <- at($a, $p), at($b, $p), $a != $b."))
    for who, where in (("Alice", "hall"), ("Ben", "hall"), ("Cleo", "attic")):
        source.assert_(Record("at", who, where))
    tab = tabs(viewport=size, color_scheme=scheme)
    page = go(tab, daemon, "overview")
    expect(page.locator("[data-tile=Facts] .figure")).to_have_text("6")
    with source.publish("prices", retain=1 << 16) as prices:
        prices.send("tin")
        for view in VIEWS:
            page.locator(f"#nav [data-view={view}]").click()
            expect(page.locator("#view")).to_have_attribute("data-view", view)
            page.wait_for_load_state("networkidle")
            assert page.locator("#problem").is_hidden(), page.locator("#problem").inner_text()
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 0, f"{view} is {wide} px wider than the screen"
            tab.shot(view)
