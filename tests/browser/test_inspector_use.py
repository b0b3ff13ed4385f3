"""Small things that one meets in the inspector: the cursor, the labels, names that deceive, what is alive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import dataspace
from dataspace import Record
from tests.browser.pages import Tab, until
from tests.browser.test_inspector import LAPTOP, PHONE, go, look_for, rows
from tests.server.processes import DaemonProcess

Source = dataspace.BlockingSpace

TITLES = """[...document.querySelectorAll("[title],[aria-label]")]
  .map((each) => each.title + each.ariaLabel).join()"""

WIDEST = {"Turns/s": "99,999", "In/s": "1,023 KiB", "Out/s": "1,023 KiB", "Memory": "1,023 KiB"}
WIDEST |= {"Streams": "9,999", "Backlog": "99,999", "Lag": "119 min", "Session": "1234567"}

NARROW = """(widest) => [...document.querySelectorAll("[role=columnheader]")].map((head, at) => {
  const cell = document.querySelectorAll(".grid-row:not([hidden]) [role=gridcell]")[at];
  const said = cell.textContent;
  cell.textContent = widest[head.dataset.column] ?? "";
  const isCut = cell.scrollWidth > cell.clientWidth;
  cell.textContent = said;
  return isCut ? head.dataset.column : null;
}).filter((each) => each !== null)"""

CUT = """[...document.querySelectorAll("[role=columnheader]")]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"""


def test_the_cursor_stays_on_its_row_while_others_come_and_go(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    claims = {name: source.assert_(Record("at", name)) for name in ("b", "d", "f")}
    page = go(tabs(), daemon, "facts")
    look_for(page, "at($who)")
    expect(page.locator("#facts-said")).to_contain_text("3 facts, live")
    page.locator("[role=columnheader] button", has_text="who").focus()
    page.keyboard.press("Enter")  # in order
    until(page, "document.querySelector('.grid-row:not([hidden])')?.textContent.startsWith('\"b\"')")
    grid = page.get_by_role("grid", name="Facts that match")
    grid.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    active = page.locator(".grid-row.active")
    expect(active).to_contain_text('"d"')
    for name in ("a", "c", "e"):
        source.assert_(Record("at", name))
    expect(page.locator("#facts-said")).to_contain_text("6 facts, live")
    expect(active).to_contain_text('"d"')
    page.keyboard.press("Enter")
    expect(page.locator("#fact")).to_have_text('at("d")')
    page.keyboard.press("ArrowUp")
    expect(active).to_contain_text('"c"')
    page.keyboard.press("ArrowDown")
    source.retract(claims["d"])
    expect(page.locator("#facts-said")).to_contain_text("5 facts, live")
    expect(active).to_have_count(0)
    page.keyboard.press("Enter")  # opens no other
    expect(page.locator("#fact")).to_have_text('at("d")')


def test_a_line_of_the_newest_changes_keeps_the_focus_while_others_come(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    page = go(tabs(), daemon, "facts")
    look_for(page, "at($who)")
    expect(page.locator("#facts-said")).to_contain_text("live")
    first = source.assert_(Record("at", "first")).epoch
    lines = page.locator("#changes li")
    expect(lines).to_have_count(1)
    button = lines.get_by_role("button", name=str(first), exact=True)
    button.focus()
    for n in range(5):
        source.assert_(Record("at", n))
        expect(lines.first).to_contain_text(f"at({n})")
    expect(lines).to_have_count(6)
    expect(button).to_be_focused()
    for n in range(5, 205):
        source.assert_(Record("at", n))
    expect(lines.first).to_contain_text("at(204)")
    expect(lines).to_have_count(200)
    said = lines.all_inner_texts()
    assert [f"at({n})" in line for n, line in zip(range(204, 4, -1), said, strict=True)] == [True] * 200


def test_a_busy_space_keeps_no_task_of_the_page_long(
    chromium: Browser,
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
    tmp_path: Path,
) -> None:
    """A hundred changes in a second of whatever there is: no task takes 50 ms of CPU time."""
    kept = [source.assert_(Record("reading", n, "x" * 60)) for n in range(300)]
    page = go(tabs(), daemon, "facts")
    look_for(page, "_")
    expect(page.locator("#facts-said")).to_contain_text("live")
    chromium.start_tracing(page=page, path=tmp_path / "trace", categories=["toplevel"])
    for n in range(200):
        kept.append(source.assert_(Record("reading", -n, "x" * 60)))
        source.retract(kept.pop(0))
        page.wait_for_timeout(20)
    events = json.loads(chromium.stop_tracing())["traceEvents"]
    main = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    costs = [
        each.get("tdur", 0) / 1000
        for each in events
        if each["name"].endswith("RunTask") and (each["pid"], each["tid"]) in main
    ]
    assert len(costs) > 100, "no tasks were recorded"
    assert max(costs) < 50


def test_every_sort_button_is_reached_by_tab_and_keeps_the_focus(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    source.assert_(Record("at", "a", "b"))
    page = go(tabs(), daemon, "facts")
    look_for(page, "at($who, $where)")
    expect(page.locator("#facts-said")).to_contain_text("1 fact, live")
    buttons = page.locator("[role=columnheader] button")
    buttons.nth(0).focus()
    for at in range(1, buttons.count()):
        page.keyboard.press("Tab")
        expect(buttons.nth(at)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator('[aria-sort="ascending"] button')).to_be_focused()


def test_facts_opens_on_the_labels_that_there_are(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    for n in range(3):
        source.assert_(Record("reading", n, n / 2))
    source.assert_(Record("door", "open"))
    tab = tabs()
    page = go(tab, daemon, "facts")
    labels = page.locator("#labels button")
    expect(labels.first).to_have_text("reading/2 3")
    expect(page.locator('#labels button[data-label="door/1"]')).to_have_text("door/1 1")
    assert rows(page) == []
    expect(page.locator(".grid-empty")).to_be_hidden()  # no fact was asked for, so none is missing
    tab.shot("labels")
    labels.first.click()
    expect(page.locator("#facts-said")).to_contain_text("3 facts, live")
    assert page.input_value("#pattern") == "reading($a, $b)"
    expect(page.locator("#labels")).to_be_hidden()


def test_a_name_that_turns_the_direction_of_text_is_shown_by_its_numbers(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    name = "safe\u202etxt.exe"
    source.assert_(Record("rule", name, "near($a) <- at($a), no such syntax"))
    with dataspace.connect_blocking(daemon.url, name=name):
        tab = tabs()
        for view in ("rules", "sessions", "overview", "console", "interest", "actors", "topics"):
            page = go(tab, daemon, view)
            if view == "rules":
                expect(page.locator("[data-suspended]")).to_contain_text(r"safe\u202etxt.exe")
            if view == "sessions":
                expect(page.locator(".grid-row:visible", has_text=r"safe\u202e")).to_be_visible()
            assert "\u202e" not in page.locator("body").inner_text()
            assert "\u202e" not in page.evaluate(TITLES)


def test_the_footer_is_alive_and_what_a_view_said_goes_with_it(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    page = go(tabs(), daemon, "overview")
    expect(page.locator("#status")).to_have_text("connected to main")
    epoch = 0
    for n in range(3):
        epoch = source.send(Record("tick", n))
        expect(page.locator("#now")).to_have_text(f"epoch {epoch}")
    page.keyboard.press("s")
    expect(page.locator("#view")).to_have_attribute("data-view", "sessions")
    expect(page.locator("#status")).to_have_text("")
    expect(page.locator("h1")).to_have_text("Sessions of the space main")


def test_why_says_of_which_epoch_it_speaks(
    daemon: DaemonProcess,
    source: Source,
    tabs: Callable[..., Tab],
) -> None:
    epoch = source.assert_(Record("at", "a")).epoch
    page = go(tabs(), daemon, "rules")
    page.fill("#about", 'at("a")')
    page.click("#why")
    expect(page.locator("#why-epoch")).to_have_text(f"At epoch {epoch}.")


@pytest.mark.parametrize(("size", "columns"), [(LAPTOP, 12), (PHONE, 4)], ids=["laptop", "phone"])
def test_sessions_show_whole_columns(
    daemon: DaemonProcess,
    tabs: Callable[..., Tab],
    size: dict[str, int],
    columns: int,
) -> None:
    with dataspace.connect_blocking(daemon.url, name="a client of some length"):
        tab = tabs(viewport=size)
        page: Page = go(tab, daemon, "sessions")
        row = page.locator(".grid-row:visible", has_text="a client of some length")
        expect(row).to_be_visible()
        heads = page.locator("[role=columnheader]")
        assert heads.count() == columns
        assert page.evaluate(CUT) == []
        assert page.evaluate(NARROW, WIDEST) == []
        grid = page.get_by_role("grid", name="Sessions")
        assert grid.evaluate("each => each.scrollWidth <= each.clientWidth"), "columns are out of sight"
        if size is LAPTOP:
            name = row.get_by_role("gridcell").nth(1)
            assert name.evaluate("each => each.scrollWidth <= each.clientWidth"), "the name is cut"
            assert grid.evaluate("each => each.clientWidth") > 1200, "nothing is beside the list"
        tab.shot("list")
        row.click()
        expect(page.locator("#session-about")).to_contain_text("a client of some length")
        assert grid.evaluate("each => each.scrollWidth <= each.clientWidth"), "columns are out of sight"
        tab.shot("one")
