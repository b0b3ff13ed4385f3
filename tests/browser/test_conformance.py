"""The conformance kit, run by the JavaScript client within a page of Chromium."""

from __future__ import annotations

import sys

import trio
from playwright.sync_api import sync_playwright

from tests.browser import gateway
from tests.conformance.driving import program
from tests.conformance.test_sessions import NAMES, follow

HOLD = """async () => {
  const read = async (name) => (await fetch(`/kit/${name}.json`)).json();
  const client = await import("/static/dataspace.js");
  const { held } = await import("/drivers/holding.mjs");
  return held(client, { values: await read("values"), patterns: await read("patterns") });
}"""


async def test_a_page_follows_all_sessions(executable: str, nursery: trio.Nursery) -> None:
    url = await nursery.start(gateway.serve)
    async with program(sys.executable, "-m", "tests.browser.driver", executable, url) as driver:
        await driver.event("ready")
        for name in NAMES:
            try:
                await follow(driver, name)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


async def test_a_page_has_the_values_and_patterns_of_the_kit(executable: str, nursery: trio.Nursery) -> None:
    url = await nursery.start(gateway.serve)

    def hold() -> object:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable)
            page = browser.new_page()
            page.goto(url)
            return page.evaluate(HOLD)

    told = await trio.to_thread.run_sync(hold)
    assert isinstance(told, dict) and told["wrong"] == []
    assert told["held"] > 1000
