"""The JavaScript client in a page: over a killed daemon, from another origin, and many of it at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

import dataspace
from dataspace import Record
from tests.browser.conftest import started
from tests.browser.pages import Tab, until, web
from tests.server.processes import DaemonProcess

AWAY = ["WebSocket connection to", "Failed to load resource"]

OBSERVE = """async (pattern) => {
  const { connect } = await import("/static/dataspace.js");
  globalThis.changes = [];
  globalThis.seen = [];
  globalThis.numbers = [];
  globalThis.space = await connect("/ws", { onConnection: ({ change }) => changes.push(change) });
  const observation = space.observe(pattern, { policy: "wait", durable: true, window: 7 });
  numbers.push((await observation.read()).number);
  (async () => {
    for await (const epoch of observation) {
      numbers.push(epoch.number);
      seen.push(...epoch.messages.map(([n]) => n));
    }
  })();
}"""


def test_a_page_comes_back_to_a_killed_daemon_without_a_gap(tmp_path: Path, tabs: Callable[..., Tab]) -> None:
    daemon = started(tmp_path)
    try:
        tab = tabs()
        tab.expected += AWAY
        tab.page.goto(f"{web(daemon)}/static/dataspace.js")
        tab.page.evaluate(OBSERVE, "n($n)")
        sent = 0
        for times in range(2):
            with dataspace.connect_blocking(daemon.url) as source:
                for _ in range(200):
                    source.send(Record("n", sent))
                    sent += 1
            daemon.kill()
            until(tab.page, "changes.at(-1) === 'lost'")
            daemon.start()
            with dataspace.connect_blocking(daemon.url) as source:  # perhaps before the page is back
                source.send(Record("n", sent))
                sent += 1
            until(tab.page, "changes.length === it", 2 * times + 3)
        with dataspace.connect_blocking(daemon.url) as source:
            source.send(Record("n", sent))
        until(tab.page, "seen.at(-1) === it", sent)
        assert tab.page.evaluate("seen") == list(range(sent + 1)), "every message, once, in order"
        numbers = tab.page.evaluate("numbers")
        assert numbers == sorted(set(numbers))
        assert tab.page.evaluate("changes") == ["connected"] + 2 * ["lost", "anew"]
    finally:
        daemon.stop()


def test_a_page_of_another_origin_is_refused(daemon: DaemonProcess, tabs: Callable[..., Tab]) -> None:
    tab = tabs(bypass_csp=True)  # no page of the daemon would even ask
    tab.expected += [*AWAY, "Access to fetch"]
    elsewhere = web(daemon).replace(
        "127.0.0.1", "localhost"
    )  # the same listener, for browsers another origin
    tab.page.goto(f"{elsewhere}/healthz")
    connect = """async (url) => {
      const { connect } = await import("/static/dataspace.js");
      try {
        await (await connect(url)).close();
        return "connected";
      } catch (error) {
        return error.name;
      }
    }"""
    assert tab.page.evaluate(connect, "/ws") == "connected"
    assert tab.page.evaluate(connect, f"{web(daemon)}/ws".replace("http", "ws")) == "Unreachable"
    fetched = tab.page.evaluate(
        "(url) => fetch(url).then((answer) => answer.status, (error) => error.name)",
        f"{web(daemon)}/v1/spaces/main/facts?pattern=_",
    )
    assert fetched == "TypeError", "the answer is withheld from the page"


def test_a_hundred_watchers_in_one_browser_all_see_every_turn(daemon: DaemonProcess, page: Page) -> None:
    page.goto(f"{web(daemon)}/static/dataspace.js")
    page.evaluate(
        """async ({ sockets, streams }) => {
          const { connect } = await import("/static/dataspace.js");
          globalThis.counts = {};
          const watch = async (name, observation) => {
            counts[name] = 0;
            await observation.read();
            (async () => {
              for await (const { added } of observation) counts[name] += added.length;
            })();
          };
          const spaces = await Promise.all(Array.from({ length: sockets }, () => connect("/ws")));
          const watched = spaces.map((space) => space.observe("tick($n)", { policy: "wait" }));
          await Promise.all(watched.map((each, at) => watch(`socket ${at}`, each)));
          const open = (at) => new Promise((resolve, reject) => {
            const source = new EventSource("/v1/spaces/main/observe?pattern=tick%28$n%29");
            counts[`stream ${at}`] = 0;
            source.onerror = () => reject(new Error("an event stream failed"));
            source.addEventListener("open", resolve);
            const heard = ({ data }) => {
              const { added, state } = JSON.parse(data);
              if (!state) counts[`stream ${at}`] += added.length;
            };
            source.onmessage = heard;
          });
          await Promise.all(Array.from({ length: streams }, (_, at) => open(at)));
        }""",
        {"sockets": 96, "streams": 4},  # browsers open six connections of HTTP/1.1 to one origin
    )
    with dataspace.connect_blocking(daemon.url) as source:
        for n in range(50):
            source.assert_(Record("tick", n))
    until(page, "Object.values(counts).every((count) => count === 50)")
    assert len(page.evaluate("counts")) == 100
