"""The JavaScript client's live maps, and how it waits for a daemon: programs in Node, with a real daemon."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from server.config.model import Config
from server.daemon.serve import serve
from tests.conformance.driving import MODULE, node
from tests.ports import free_port
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

LIVE = """
const space = await connect(url, { name: "live" });
const other = await connect(url);
const steps = [];
const until = (map, holds) => new Promise((resolve) => {
  const stop = map.subscribe(() => holds() && (stop(), resolve()));
  if (holds()) stop(), resolve();
});
const first = await other.assert(record("at", "a", 1, "x"));
const map = await space.live("at($who, $n, $what)", "who").ready;
steps.push(["first", map.size, map.get("a"), map.epoch > 0]);

await other.turn((draft) => { draft.assert(record("at", "b", 2, "y")); });
await until(map, () => map.has("b"));
const before = map.snapshot;
const second = await other.assert(record("at", "a", 3, "z"));       // two facts with one key
await until(map, () => map.get("a").n === 3);
const isFrozen = Object.isFrozen(before);
steps.push(["newest", map.get("a").what, map.size, before === map.snapshot, isFrozen, before.length]);
await second.retract();
await until(map, () => map.get("a").n === 1);
await first.retract();
await until(map, () => !map.has("a"));
steps.push(["left", [...map.keys()], [...map.values()], [...map.entries()].length]);

const pairs = await space.live("at($who, $n, $what)", ["who", "n"]).ready;
steps.push(["pairs", [...pairs.keys()], pairs.get(["b", 2]).what, pairs.has(["b", 3])]);

for (const refused of [() => space.live("at($who, _, _)", "when"), () => space.live("at($who, _, _)", []),
                     () => space.live("at($who, _, _)", "who", { policy: "drop" })]) {
  try { refused(); } catch (error) { steps.push([error.name, error.message]); }
}
let told = 0;
const stop = map.subscribe(() => told++);
stop();
const wrong = new Error("the application's");
map.subscribe(() => { throw wrong; });
const seen = new Promise((resolve) => process.on("uncaughtException", (error) => {
  if (error !== wrong) process.exit(1);
  resolve(error.message);
}));
await other.assert(record("at", "c", 4, "w"));
steps.push(["an error of the application", await seen, told, map.has("c") && map.error === null]);
map.close();
steps.push(["closed", map.error.name, map.has("b")]);
await other.close();
await space.close();
await new Promise((resolve) => setTimeout(resolve));
steps.push(["ended", pairs.error?.name]);
console.log(JSON.stringify(steps));
"""

HOOKS = """
// React's own contract, as far as a hook needs it: state, effects after a render, an external store
const React = (component) => {
  const cells = [];
  const effects = [];
  let at, waiting = false;
  const now = () => { waiting = false; render(); };
  const again = () => { if (!waiting) { waiting = true; queueMicrotask(now); } };
  const same = (one, other) => one && other && one.every((each, place) => Object.is(each, other[place]));
  const kit = {
    useState: (initial) => {
      const place = at++;
      cells[place] ??= { value: initial };
      return [cells[place].value, (value) => { cells[place].value = value; again(); }];
    },
    useEffect: (effect, dependencies) => {
      const place = at++;
      const cell = (cells[place] ??= {});
      if (same(cell.dependencies, dependencies)) return;
      effects.push(() => { cell.undo?.(); cell.undo = effect(); });
      cell.dependencies = dependencies;
    },
    useSyncExternalStore: (subscribe, read) => {
      const place = at++;
      const cell = (cells[place] ??= {});
      if (cell.subscribe !== subscribe) {
        cell.stop?.();
        cell.subscribe = subscribe;
        cell.stop = subscribe(again);
      }
      if (!Object.is(read(), read())) throw new Error("a store must return the same until it changes");
      return read();
    },
  };
  const shown = [];
  let useLive;
  const render = () => {
    at = 0;
    try { shown.push(component(useLive)); } catch (error) { shown.push(error.message); }
    for (const effect of effects.splice(0)) effect();
  };
  return { start: (hooks) => { ({ useLive } = hooks(kit)); render(); }, again, shown };
};
"""


async def run(tmp_path: Path, text: str, *, url: str = "", check: bool = True) -> Any:
    """Runs a program and returns what it prints as JSON."""
    program = tmp_path / "program.mjs"
    names = "absent, connect, exactly, record, Unreachable"
    program.write_text(
        f"import {{ {names} }} from {json.dumps(MODULE.as_uri())};\n"
        f"const url = {json.dumps(url)};\nconst base = {json.dumps(MODULE.parent.as_uri())};\n{text}"
    )
    command = [node(), "--no-warnings", "--experimental-websocket", str(program)]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert not check or done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture
async def http(tmp_path: Path, nursery: trio.Nursery) -> str:
    """The address of a daemon."""
    (address,) = await nursery.start(serve, Config(("http:127.0.0.1:0",), tmp_path / "data"))
    return f"http://127.0.0.1:{address.rpartition(':')[2]}"


async def test_a_live_map_is_what_matches(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, LIVE, url=http)
    assert told == [
        ["first", 1, {"who": "a", "n": 1, "what": "x"}, True],
        ["newest", "z", 2, False, True, 2],
        ["left", ["b"], [{"who": "b", "n": 2, "what": "y"}], 1],
        ["pairs", [["b", 2]], "y", False],
        ["UsageError", "a live map is by captures of its pattern: no when among who"],
        ["UsageError", "a live map is by captures of its pattern: no names among who"],
        ["UsageError", "no option policy, there are durable, pace, quiet"],
        ["an error of the application", "the application's", 0, True],
        ["closed", "Closed", True],
        ["ended", "Closed"],
    ]


async def test_a_live_map_follows_over_a_killed_daemon(tmp_path: Path) -> None:
    listen = f"http:127.0.0.1:{free_port()}"
    text = """
    const space = await connect(url, { owner: "ops" });
    await space.assert(record("at", "a", 1));
    const map = await space.live("at($who, $n)", "who", { durable: true }).ready;
    console.error("ready");
    await new Promise((resolve) => map.subscribe(() => map.has("b") && resolve()));
    console.log(JSON.stringify([map.snapshot, map.error, space.reconnects]));
    await space.close();
    """
    process = DaemonProcess(tmp_path / "data", "--listen", listen)
    process.start()
    try:
        port = listen.rpartition(":")[2]
        program = tmp_path / "program.mjs"
        program.write_text(
            f"import {{ connect, record }} from {json.dumps(MODULE.as_uri())};\n"
            f'const url = "http://127.0.0.1:{port}";\n{text}'
        )
        command = [node(), "--no-warnings", "--experimental-websocket", str(program)]
        with program_of(command) as running:
            assert running.stderr is not None and running.stdout is not None
            assert running.stderr.readline() == "ready\n"
            process.kill()
            process.start()
            await assert_at(process.url, "b")
            told = json.loads(await trio.to_thread.run_sync(running.stdout.readline))
        assert told == [[{"who": "a", "n": 1}, {"who": "b", "n": 2}], None, 1]
    finally:
        process.stop()


def program_of(command: list[str]) -> subprocess.Popen[str]:
    """Starts a program whose output is read line by line."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def assert_at(url: str, who: str) -> None:
    """Asserts that somebody is there, for good."""
    import dataspace

    async with dataspace.connect(url, owner="other") as space:
        await space.assert_(dataspace.Record("at", who, 2))


async def test_a_program_waits_for_a_daemon_that_starts_later(tmp_path: Path, nursery: trio.Nursery) -> None:
    port = free_port()
    text = """
    try { await (await connect(url)).close(); } catch (error) { console.error(error.name); }
    const space = await connect(url, { wait: 30_000 });
    console.log(JSON.stringify((await space.status()).space));
    await space.close();
    """

    async def start() -> None:
        await trio.sleep(0.5)
        await nursery.start(serve, Config((f"http:127.0.0.1:{port}",), tmp_path / "data"))

    nursery.start_soon(start)
    assert await run(tmp_path, text, url=f"http://127.0.0.1:{port}") == "main"


async def test_a_call_waits_for_a_daemon_that_is_away_as_long_as_it_may(http: str, tmp_path: Path) -> None:
    text = """
    import { webSocket } from "STATIC/transport.js";
    let link, gone = false;
    const transport = (address, heard) => {
      if (gone) { queueMicrotask(() => heard.closed("away")); return { send() {}, close() {} }; }
      const made = webSocket(address, heard);
      link = { ...made, send: (bytes) => (link.deaf ? undefined : made.send(bytes)) };
      return { send: (bytes) => link.send(bytes), close: made.close };
    };
    const steps = [];
    const shown = (error) => [error.name, error.message.replace(/at \\S+ /, "")];
    const failed = (promise) => promise.then(() => "answered", shown);
    let lost;
    const isLost = new Promise((resolve) => (lost = resolve));
    const events = ({ change }) => change === "lost" && lost();
    const space = await connect(url, { timeout: 200, transport, onConnection: events });
    await space.assert(record("here"));
    link.deaf = true;
    const sent = failed(space.send(record("sent")));
    gone = true;
    link.close();
    await isLost;
    steps.push(await sent);
    steps.push(await failed(space.send(record("unsent"))));
    steps.push(await failed(space.matches("here()")), await failed(space.status()));
    steps.push(space.inFlight);
    gone = false;
    let answer;
    do answer = await failed(space.sync()); while (answer !== "answered");
    steps.push(answer, space.inFlight);
    console.log(JSON.stringify(steps));
    await space.close();
    """.replace("STATIC", MODULE.parent.as_uri())
    away = "the daemon has been away for 200 ms"
    assert await run(tmp_path, text, url=http) == [
        ["Unreachable", f"{away}: the turn was sent before, so it may have taken effect"],
        ["Unreachable", f"{away}: the turn was not sent, and will not be"],
        ["Unreachable", away],
        ["Unreachable", away],
        1,
        "answered",
        0,
    ]


async def test_a_socket_whose_errors_nobody_hears_does_not_end_a_program(tmp_path: Path) -> None:
    """The package ``ws`` of Node throws an error event that has no listener."""
    text = """
    const Plain = globalThis.WebSocket;
    globalThis.WebSocket = class extends Plain {
      constructor(...given) {
        super(...given);
        const unheard = () => { if (!this.onerror) throw new Error("unhandled error event"); };
        this.addEventListener("error", unheard);
      }
    };
    try { await connect(url); } catch (error) { console.log(JSON.stringify([error.name])); }
    """
    assert await run(tmp_path, text, url=f"http://127.0.0.1:{free_port()}") == ["Unreachable"]


async def test_the_hook_shows_what_matches(http: str, tmp_path: Path) -> None:
    text = (
        HOOKS
        + """
    const { hooks } = await import(`${base}/react.js`);
    const space = await connect(url);
    let given = null, pattern = "at($who)", by = "who";
    const page = React((useLive) => useLive(given, pattern, by).map(({ who }) => who).join());
    page.start(hooks);
    const pause = () => new Promise((resolve) => setTimeout(resolve, 5));
    const until = async (holds) => { while (!holds()) await pause(); };
    given = space;
    page.again();
    const claim = await space.assert(record("at", "a"));
    await until(() => page.shown.at(-1) === "a");
    await space.assert(record("at", "b"));
    await until(() => page.shown.at(-1) === "a,b");
    pattern = "in($who)";
    page.again();
    await space.assert(record("in", "c"));
    await until(() => page.shown.at(-1) === "c");
    by = "nobody";
    page.again();
    await until(() => page.shown.at(-1).startsWith("a live map is by captures"));
    by = "who";
    page.again();
    await until(() => page.shown.at(-1) === "c");
    console.log(JSON.stringify([page.shown[0], (await space.matches("Observe($p)")).length]));
    await space.close();
    """
    )
    assert await run(tmp_path, text, url=http) == ["", 1]
