"""A live map of the JavaScript client folds the epochs: in all small cases, and over killed daemons."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from tests.conformance.driving import MODULE, node
from tests.conformance.test_javascript_live import http, run
from tests.conformance.vectors import FOLDER
from tests.ports import free_port
from tests.server.processes import DaemonProcess

__all__ = ["http"]

pytestmark = pytest.mark.slow

DRIVERS = FOLDER / "drivers"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "live.json").read_text())["cases"]


async def printed(*command: str) -> Any:
    """Returns what a program of Node prints, as JSON."""
    with trio.fail_after(120):
        whole = [node(), "--no-warnings", "--experimental-websocket", *command]
        done = await trio.run_process(whole, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


async def test_the_cases_of_the_kit_are_seen_as_it_says(http: str) -> None:
    seen = await printed(str(DRIVERS / "live.mjs"), str(MODULE), http, str(FOLDER / "live.json"))
    for case, found in zip(CASES, seen, strict=True):
        assert found == case["steps"], case["name"]


async def test_the_table_is_a_fold_in_all_small_cases() -> None:
    assert await printed(str(DRIVERS / "tables.mjs"), str(MODULE.parent)) == 2 * 16**3 * (5 + 1)


PROGRAM = """
const [many, isDurable] = CHOICES;
const space = await connect(url, { owner: "writer", wait: 30_000 });
const shown = (row) => (row === null ? [] : Array.isArray(row) ? row.map(({ n }) => n) : [row.n]);
const map = await space.live("t($d, $n)", "d", { many, durable: isDurable }).ready;
const text = JSON.stringify;
const state = () => [...map].map(([key, row]) => [key, shown(row)]).sort();
const folded = new Map(state());
const seen = [[map.epoch, state()]];
let isOver = false;
const reading = (async () => {
  while (!isOver) {
    let changes;
    try {
      changes = await map.changed({ timeout: 50 });
    } catch (error) {
      if (error.name === "TimedOut") continue;
      throw error;
    }
    for (const { key, old, now } of changes) {
      if (text(shown(old)) !== text(folded.get(key) ?? [])) throw new Error(`an old row of ${key}`);
      if (now === null) folded.delete(key);
      else folded.set(key, shown(now));
    }
    const now = state();
    if (text([...folded].sort()) !== text(now)) throw new Error("the changes are not the map");
    seen.push([map.epoch, now]);
    if (Math.random() < 0.3) await new Promise((resolve) => setTimeout(resolve, 30)); // a slow reader
  }
})();
let newest = 0;
const pause = () => new Promise((resolve) => setTimeout(resolve, 2));
for (const turn of TURNS) {
  newest = await space.turn((draft) => {
    for (const [verb, d, n] of turn) {
      if (verb === "put") draft.put(record("t", d, n));
      else if (verb === "assert") draft.assert(record("t", d, n));
      else draft.withdraw(`t("${d}", ${n ?? "_"})`);
    }
  });
  await pause();
}
await map.at(newest);
await new Promise((resolve) => setTimeout(resolve, 150));
isOver = true;
await reading;
const { reconnects } = space;
console.log(text({ seen, reconnects, last: state(), folded: [...folded].sort() }));
await space.close();
"""


def drawn(seed: int, *, many: bool) -> list[list[tuple[str, str, int | None]]]:
    """Returns turns that change a few keys; without ``many`` each key has one row."""
    draw = random.Random(seed)
    turns = []
    for _ in range(400):
        turn: list[tuple[str, str, int | None]] = []
        for key in draw.sample("abcdef", draw.randint(1, 3)):
            verb = draw.choice(["put", "put", "put", "withdraw"] + ["assert", "one"] * many)
            turn.append(("withdraw", key, draw.randint(0, 3)) if verb == "one"
                        else (verb, key, None if verb == "withdraw" else draw.randint(0, 3)))  # fmt: skip
        turns.append(turn)
    return turns


@pytest.mark.parametrize(
    ("seed", "many", "is_durable"), [(1, False, True), (2, True, True), (3, False, False), (4, True, False)]
)
async def test_a_map_is_the_log_folded_while_its_daemon_is_killed(
    seed: int, many: bool, is_durable: bool, tmp_path: Path
) -> None:
    port = free_port()
    daemon = DaemonProcess(tmp_path / "data", "--listen", f"http:127.0.0.1:{port}")
    daemon.start()
    turns = json.dumps(drawn(seed, many=many))
    text = PROGRAM.replace("CHOICES", json.dumps([many, is_durable])).replace("TURNS", turns)
    told: dict[str, Any] = {}

    async def program() -> None:
        told.update(await run(tmp_path, text, url=f"http://127.0.0.1:{port}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(program)
        while not told:
            await trio.sleep(0.7)
            await trio.to_thread.run_sync(daemon.kill)
            await trio.to_thread.run_sync(daemon.start)
    states = await folded_log(daemon.url)
    daemon.stop()
    assert told["reconnects"] >= 1
    assert told["last"] == told["folded"] == states[max(states)]
    wrong = [
        epoch for epoch, state in told["seen"] if state != states[max(at for at in states if at <= epoch)]
    ]
    if is_durable:  # else an epoch may be seen that a kill takes back
        assert not wrong
    assert len(told["seen"]) > 20


async def folded_log(url: str) -> dict[int, list[Any]]:
    """Returns the state after each epoch of the log, as the program prints it."""
    states: dict[int, list[Any]] = {0: []}
    rows: dict[Any, list[Any]] = {}
    async with dataspace.connect(url) as space:
        newest = await space.sync()
        async for epoch in space.observe(
            "t($d, $n)", after=0, upto=newest, policy="wait", quiet=True
        ).epochs():
            for key, n in epoch.removed:
                rows[key].remove(n)
            for key, n in epoch.added:
                rows.setdefault(key, []).append(n)
            states[epoch.number] = sorted([key, list(held)] for key, held in rows.items() if held)
    return states
