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
const first = await other.assert(record("at", "a", 1, "x"));
const map = await space.live("at($who, $n, $what)", "who").ready;
steps.push(["first", map.size, map.get("a"), map.epoch > 0]);

await map.at(await other.turn((draft) => { draft.assert(record("at", "b", 2, "y")); }));
const before = map.snapshot;
await map.at(await first.replace(record("at", "a", 3, "z")));
const counts = (changes) => changes.map(({ key, old, now }) => [key, old?.n ?? null, now?.n ?? null]);
steps.push(["a change", counts(await map.changed())]);
const isFrozen = Object.isFrozen(map.snapshot) && Object.isFrozen(map.get("a"));
const { snapshot } = map;
const isSame = [map.snapshot === snapshot, before === snapshot];
steps.push(["replaced", [...map.keys()], ...isSame, isFrozen, before.length]);
await first.retract();
steps.push(["a removal", await map.changed()]);
steps.push(["left", [...map.keys()], [...map.values()], [...map.entries()].length, [...map].length]);

const pairs = await space.live("at($who, $n, $what)", ["who", "n"]).ready;
steps.push(["pairs", [...pairs.keys()], pairs.get(["b", 2]).what, pairs.has(["b", 3])]);

for (const refused of [() => space.live("at($who, _, _)", "when"), () => space.live("at($who, _, _)", []),
                     () => space.live("at($who, _, _)", "who", { policy: "drop" }),
                     () => space.live("at($who, _, _)", "who", { window: 3 }),
                     () => space.live("at($who, _, _)", "who", { sort: "who" }),
                     () => space.live("at($who, _, _)", "who", { follow: true }),
                     () => space.observe("at($who, _, _)", { by: "n" }),
                     () => space.observe("at($who, _, _)", { by: "who", parts: true })]) {
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
await map.at(await other.assert(record("at", "c", 4, "w")).then(() => other.sync()));
steps.push(["an error of the application", await seen, told, map.has("c") && map.error === null]);
const failed = (promise) => promise.then(() => "done", (error) => error.name);
const [waits, ahead] = [failed(map.changed().then(() => map.changed())), failed(map.at(10 ** 9))];
await Promise.resolve();
map.close();
steps.push(["closed", map.error.name, map.has("b"), await waits, await ahead, await failed(map.at(1))]);
for await (const change of map) steps.push(["after the end", change]);
await other.close();
await space.close();
steps.push(["ended", pairs.error?.name, await failed(pairs.changed().then(() => pairs.changed()))]);
console.log(JSON.stringify(steps));
"""

PAST = """
const space = await connect(url);
const claim = await space.assert(record("at", "a", 1));
const early = await space.put(record("at", "b", 1));
const late = await space.put(record("at", "b", 2));
await claim.retract();
const failed = (promise) => promise.then(() => "done", (error) => error.name);
const steps = [];
const past = await space.live("at($who, $n)", "who", { asOf: early, quiet: true }).ready;
const seen = failed(past.changed());
steps.push([past.snapshot, past.epoch === early, await seen, past.error?.name, past.size]);
const since = await space.live("at($who, $n)", "who", { asOf: early, follow: true }).ready;
await since.at(late + 1);
const counts = (changes) => changes.map(({ key, old, now }) => [key, old?.n, now?.n ?? null]);
steps.push([since.snapshot, counts(await since.changed())]);

// an epoch that changes nothing here arrives by no heartbeat of 15 s
const other = await space.send(record("other"));
await since.at(other);
steps.push(since.epoch >= other);
// messages are no rows
const empty = await space.live("gone($n)", "n").ready;
const sent = await space.send(record("gone", 1));
await empty.at(sent);
steps.push([empty.size, empty.epoch >= sent, await failed(empty.changed({ timeout: 20 }))]);

// two keys of one reading, of which the loop takes one: the other is not lost
await space.turn((draft) => { draft.put(record("at", "c", 3)); draft.put(record("at", "d", 4)); });
for await (const { key } of since) { steps.push(key); break; }
await space.put(record("at", "d", 5));
await since.at(await space.sync());
steps.push((await since.changed()).map(({ key, old, now }) => [key, old, now.n]));
// there and back is no change
await space.put(record("at", "d", 6));
await since.at(await space.put(record("at", "d", 5)));
steps.push(await failed(since.changed({ timeout: 20 })), since.size);

await since[Symbol.asyncDispose](); // as `await using` does
steps.push(since.error.name);
const none = space.live("at($who, $n)", "who", { asOf: 10 ** 12, quiet: true });
steps.push(await failed(none.ready), none.error.name, none.size);
await space.close();
console.log(JSON.stringify(steps));
"""

SEVERAL = """
const space = await connect(url);
const one = await space.assert(record("at", "a", 1));
const two = await space.assert(record("at", "a", 2));
const rest = await space.assert(record("at", "b", 1));
const map = await space.live("at($who, $n)", "who").ready;
const all = await space.live("at($who, $n)", "who", { many: true }).ready;
const steps = [];
const named = (call) => { try { return call(); } catch (error) { return error.name; } };
const shown = (row) => (row === null ? null : Array.isArray(row) ? row.map(({ n }) => n) : row.n);
const sides = (change) => ["old", "now"].map((side) => named(() => shown(change[side])));
const counts = (changes) => changes.map((change) => [change.key, ...sides(change)]);
steps.push([map.size, map.has("a"), named(() => map.get("a")), named(() => map.snapshot), map.get("b").n]);
steps.push([shown(all.get("a")), all.snapshot.length, Object.isFrozen(all.get("a"))]);
const three = await space.assert(record("at", "a", 3));
await rest.replace(record("at", "b", 2));
await map.at(await space.sync());
const changes = await map.changed();
steps.push(counts(changes), map.error);
try { changes[0].now; } catch (error) { steps.push(error.message); }
await three.retract();
await one.retract();
await all.at(await space.sync());
steps.push(counts(await map.changed()), map.get("a").n, counts(await all.changed()));
await space.close();
console.log(JSON.stringify(steps));
"""

REPLACED = """
const space = await connect(url);
const one = await space.assert(record("at", "a", 1));
const observation = space.observe("at($who, $n)", { by: "who" });
const plain = space.observe("at($who, $n)");
const shown = ({ added, removed, replaces, replacedBy }) => [added, replaces, removed, replacedBy];
const steps = [shown(await observation.read())];
await space.turn((draft) => {
  draft.replace(one, record("at", "a", 2));
  draft.assert(record("at", "b", 1));
});
steps.push(shown(await observation.read()));
await one.retract();
steps.push(shown(await observation.read()), shown(await plain.read()));
await space.close();
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
    useMemo: (make, dependencies) => {
      const place = at++;
      const cell = (cells[place] ??= {});
      if (!same(cell.dependencies, dependencies)) Object.assign(cell, { dependencies, value: make() });
      return cell.value;
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
    live = ["UsageError", "no option {}, there are many, sort, asOf, follow, identity, durable, pace, quiet"]
    assert told == [
        ["first", 1, {"who": "a", "n": 1, "what": "x"}, True],
        ["a change", [["b", None, 2], ["a", 1, 3]]],
        ["replaced", ["a", "b"], True, False, True, 2],
        ["a removal", [{"key": "a", "old": {"who": "a", "n": 3, "what": "z"}, "now": None}]],
        ["left", ["b"], [{"who": "b", "n": 2, "what": "y"}], 1, 1],
        ["pairs", [["b", 2]], "y", False],
        ["UsageError", "by names captures of the pattern: no when among who"],
        ["UsageError", "by names captures of the pattern: no names among who"],
        [live[0], live[1].format("policy")],
        [live[0], live[1].format("window")],
        ["UsageError", "sort is a function that compares two rows, not who"],
        ["UsageError", "follow goes on from the epoch of asOf; a map without asOf does so anyway"],
        ["UsageError", "by names captures of the pattern: no n among who"],
        ["UsageError", "by pairs the rows of a whole epoch, and with parts none is whole here"],
        ["an error of the application", "the application's", 0, True],
        ["closed", "Closed", True, "Closed", "Closed", "done"],
        ["ended", "Closed", "Closed"],
    ]


async def test_a_live_map_of_the_past_and_what_has_changed(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, PAST, url=http)
    assert told == [
        [[{"who": "a", "n": 1}, {"who": "b", "n": 1}], True, "Closed", "Closed", 2],
        [[{"who": "b", "n": 2}], [["b", 1, 2], ["a", 1, None]]],
        True,
        [0, True, "TimedOut"],
        "c",
        [["d", None, 5]],
        "TimedOut",
        3,
        "Closed",
        "Refused",
        "Refused",
        0,
    ]


async def test_several_rows_of_a_key_are_refused_where_they_are_read(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, SEVERAL, url=http)
    assert told[:4] == [
        [2, True, "SeveralRows", "SeveralRows", 1],
        [[1, 2], 2, True],
        [["a", "SeveralRows", "SeveralRows"], ["b", 1, 2]],
        None,
    ]
    assert told[4] == (
        '3 rows of the key "a": ["a", 1], ["a", 2], ["a", 3]; to have them all, make the map with many: true'
    )
    assert told[5:] == [[["a", "SeveralRows", 2]], 2, [["a", [1, 2], [2]], ["b", [1], [2]]]]


async def test_rows_that_replace_one_another_in_an_epoch_are_paired(http: str, tmp_path: Path) -> None:
    assert await run(tmp_path, REPLACED, url=http) == [
        [[["a", 1]], [None], [], []],
        [[["a", 2], ["b", 1]], [["a", 1], None], [["a", 1]], [["a", 2]]],
        [[], [], [["a", 2]], [None]],
        [[["a", 1]], None, [], None],
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
    let given = null, pattern = "at($who)", by = "who", options = {};
    const lists = [];
    const page = React((useLive) => {
      lists.push(useLive(given, pattern, by, options));
      return lists.at(-1).map((row) => row.who ?? row.map(({ n }) => n).join("")).join();
    });
    page.start(hooks);
    const pause = () => new Promise((resolve) => setTimeout(resolve, 5));
    const until = async (holds) => { while (!holds()) await pause(); };
    given = space;
    page.again();
    const claim = await space.assert(record("at", "a"));
    await until(() => page.shown.at(-1) === "a");
    await space.assert(record("at", "b"));
    await until(() => page.shown.at(-1) === "a,b");
    options = { sort: (one, other) => (one.who < other.who ? 1 : -1) };
    page.again();
    await until(() => page.shown.at(-1) === "b,a");
    page.again();
    await pause();
    const isStable = lists.at(-1) === lists.at(-2) && Object.isFrozen(lists.at(-1));
    options = {};
    pattern = "in($who)";
    page.again();
    await space.assert(record("in", "c"));
    await until(() => page.shown.at(-1) === "c");
    by = "nobody";
    page.again();
    await until(() => page.shown.at(-1).startsWith("by names captures"));
    by = "who";
    page.again();
    await until(() => page.shown.at(-1) === "c");
    [pattern, options] = ["several($who, $n)", { many: true }];
    page.again();
    await space.turn((draft) => [1, 2].forEach((n) => draft.assert(record("several", "a", n))));
    await until(() => page.shown.at(-1) === "12");
    options = {};
    page.again();
    await until(() => page.shown.at(-1).startsWith("2 rows of the key"));
    console.log(JSON.stringify([page.shown[0], isStable, (await space.matches("Observe($p)")).length]));
    await space.close();
    """
    )
    assert await run(tmp_path, text, url=http) == ["", True, 1]
