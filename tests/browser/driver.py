"""Drives the JavaScript client of a page in Chromium, for the conformance kit.

``python -m tests.browser.driver CHROMIUM URL``: a command on each line of stdin, an event on each
line of stdout.  What the page does is drivers/verbs.mjs of the kit, as in Node.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from playwright.async_api import async_playwright

BEGIN = """async () => {
  const client = await import("/static/dataspace.js");
  const { driver } = await import("/drivers/verbs.mjs");
  globalThis.carryOut = driver(client, (event) => tell(JSON.stringify(event)));
}"""


async def main(chromium: str, url: str) -> None:
    """Carries out commands until stdin ends."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium)
        page = await browser.new_page()
        page.on("pageerror", lambda error: print(error, file=sys.stderr))
        await page.expose_function("tell", lambda event: print(event, flush=True))
        await page.goto(url)
        await page.evaluate(BEGIN)
        print(json.dumps({"of": "ready"}), flush=True)
        async for command in lines():
            if (
                command["do"] == "connect"
            ):  # the page speaks WebSocket to the gateway, which speaks TCP to the player
                port = command["url"].rpartition(":")[2]
                command["url"] = f"/ws/{port}"
            await page.evaluate("(command) => void carryOut(command)", command)
        await browser.close()


async def lines() -> Any:
    """Yields the commands."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield json.loads(line)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
