"""The JavaScript client's put, withdraw and owners in turns, and its options: programs in Node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

import dataspace
from tests.conformance.driving import MODULE
from tests.conformance.test_javascript_live import http, run
from tests.ports import free_port
from tests.server.processes import DaemonProcess

__all__ = ["http"]

pytestmark = pytest.mark.slow

SETTING = """
const space = await connect(url, { name: "settings" });
const other = await connect(url);
const steps = [];
const failed = async (promise) => {
  try { await promise; } catch (error) { return [error.name, error.number, error.rows]; }
  return ["done"];
};
await space.turn((turn) => { turn.put(record("config", "speed", 7), { owner: "ops" }); });
const from = (old, value, who) => who.turn(
  (turn) => turn.put(record("config", "speed", value), { owner: "ops" }),
  { expect: [exactly('config("speed", $v)', [[old]])] },
);
await from(7, 8, other);
steps.push(await failed(from(7, 9, space)));
steps.push(await space.matches('config("speed", $v)'));
const nine = record("config", "speed", 9);
steps.push(await failed(space.put(nine, { owner: "ops", expect: [absent("config($k, $v)")] })));
await space.put(nine, { owner: "ops", expect: [exactly('config("speed", $v)', [[8]])] });
await other.put(record("place", "v1", 3, 4), { by: 'place("v1")', owner: "ops" });
await other.put(record("place", "v1", 5, 6), { by: 'place("v1")', owner: "ops" });
steps.push(await space.matches("config($k, $v)"), await space.matches("place($v, $x, $y)"));

const claim = await space.assert(record("task", 1), { owner: "ops" });
await space.turn((turn) => {
  turn.assert(record("task", 2), { owner: "ops" });
  turn.withdraw("task(_)", { owner: "ops" });
  turn.assert(record("task", 3), { owner: "ops" });
  turn.assert(record("own", 1));
  turn.withdraw("own(_)");
  turn.assert(record("own", 2));
});
steps.push(await space.matches("task($n)"), await space.matches("own($n)"), claim.owner);
const kept = await space.assert(record("task", 4), { owner: "ops" });
await kept.replace(record("task", 5));
await space.close(); // the facts of the session end, those of the owner stay
await other.first("gone()", { timeout: 300 }).catch(() => {});
steps.push(await other.matches("own($n)"), (await other.matches("task($n)")).map(([n]) => n).sort());
await other.close();
console.log(JSON.stringify(steps));
"""


async def test_a_durable_value_is_compared_and_set_in_one_turn(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, SETTING, url=http)
    assert told == [
        ["ExpectationFailed", 1, [[8]]],
        [[8]],
        ["ExpectationFailed", 1, [["speed", 8]]],
        [["speed", 9]],
        [["v1", 5, 6]],
        [[3]],
        [[2]],
        "ops",
        [],
        [3, 5],
    ]


AGAIN = """
const space = await connect(url);
await space.assert(record("own", 1));
await space.assert(record("own", 2, "x"));
await space.assert(record("pair", "a", 1));
await space.turn((turn) => {
  turn.put(record("pair", "a", 2));
  turn.put(record("pair", "b", 1));
  turn.put(record("pair", "b", 2));
  turn.withdraw("own(1)");
  turn.put(record("seat", 1, "ann"), { by: "seat($n)" });
});
await space.put(record("seat", 1, "ben"), { by: "seat($n)" });
const patterns = ["pair($k, $v)", "own($n)", "seat(_, $who)"];
const told = () => Promise.all(patterns.map((each) => space.matches(each)));
const before = await told();
console.error("ready");
while (!space.reconnects) await new Promise((resolve) => setTimeout(resolve, 20));
await space.sync();
console.log(JSON.stringify([before, await told()]));
await space.close();
"""


async def test_a_lost_session_gets_again_what_put_and_withdraw_have_left(
    tmp_path: Path,
) -> None:
    port = free_port()
    daemon = DaemonProcess(tmp_path / "data", "--listen", f"http:127.0.0.1:{port}")
    daemon.start()
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            async with dataspace.connect(daemon.url) as witness:
                await witness.first('seat(1, "ben")', timeout=30)
            await trio.to_thread.run_sync(daemon.kill)
            await trio.to_thread.run_sync(daemon.start)

        nursery.start_soon(kill)
        before, after = await run(tmp_path, AGAIN, url=f"http://127.0.0.1:{port}")
    daemon.stop()
    assert sorted(before[0]) == [["a", 2], ["b", 2]] and before[1:] == [[[2]], [["ben"]]]
    assert [sorted(each) for each in after] == [sorted(each) for each in before]


OPTIONS = """
import * as all from "MODULE";
const space = await connect(url);
const NONE = { nonsense: 1 };
const pattern = "a($n)";
const fact = record("a", 1, 2);
let draft, claim;
await space.turn((made) => { draft = made; claim = made.assert(fact); });
const topic = await space.publish("t");
const samples = {
  Space: {
    assert: [fact], send: [fact], turn: [() => {}], put: [fact], first: [pattern], observe: [pattern],
    live: [pattern, "n"], matches: [pattern], consume: [pattern], subscribe: ["t"], publish: ["t"],
    endTopic: ["t"], peek: ["w"], sync: [], status: [], request: ["sync", {}], close: [],
  },
  Draft: {
    assert: [fact], retract: [claim], replace: [claim, fact], put: [fact], withdraw: [pattern], send: [fact],
  },
  Claim: { retract: [], replace: [fact] },
  Publication: { send: [[1]] },
  Job: { done: [], again: [], dead: ["why"], extend: [], cause: [] },
};
const jobs = space.consume("b($n)", { group: "w", start: "held" });
const job = new all.Job(jobs, [], [1, 0, 0, 1, 1, "fact", []]);
const epoch = async () => (await space.status()).epoch;
while (await epoch() < 3) await space.sync(); // one for the fact, two for the group, which opens meanwhile
const before = await epoch();
const made = { Space: space, Draft: draft, Claim: claim, Publication: topic, Job: job };
const functions = { connect: [url], unchanged: [pattern], capture: ["n"] };
const wrong = [];
const refuses = async (name, call) => {
  try {
    await call();
    wrong.push(name);
  } catch (error) {
    const isKnown = error instanceof all.UsageError && error.message.includes("no option nonsense");
    if (!isKnown) wrong.push([name, String(error)]);
  }
};
for (const [kind, verbs] of Object.entries(samples)) {
  for (const name of Object.getOwnPropertyNames(all[kind].prototype)) {
    const { value } = Object.getOwnPropertyDescriptor(all[kind].prototype, name);
    const isVerb = typeof value === "function" && name !== "constructor";
    if (kind === "Publication" && name !== "send") continue; // its steps have no options
    if (!isVerb || name === "parts") continue;
    if (!(name in verbs)) { wrong.push(`${kind}.${name} has no sample`); continue; }
    await refuses(`${kind}.${name}`, () => made[kind][name](...verbs[name], NONE));
  }
}
for (const [name, given] of Object.entries(functions)) await refuses(name, () => all[name](...given, NONE));
await refuses("turn with expects", () => space.turn(() => {}, { nonsense: [], expect: [] }));
console.log(JSON.stringify([wrong, before, await epoch()]));
await space.close();
"""


async def test_no_verb_takes_an_option_that_it_does_not_know(http: str, tmp_path: Path) -> None:
    wrong, before, after = await run(tmp_path, OPTIONS.replace("MODULE", MODULE.as_uri()), url=http)
    assert wrong == [] and after == before == 3, "and nothing was done"


def test_every_function_with_options_is_among_those_that_were_asked() -> None:
    """A function that takes options apart by itself would ignore others."""
    for file in MODULE.parent.glob("*.js"):
        text = file.read_text()
        found = re.findall(
            r"^ *(?:export )?(?:async )?(?:function )?\*?#?(\w+)\(.*\{ \w+.*\} = \{\}\) \{$",
            text,
            re.MULTILINE,
        )
        assert [name for name in found if name != "constructor"] == [], file.name


ENDED = """
const space = await connect(url);
let kept = null;
const claim = await space.assert(record("own", 1));
await space.turn((turn) => { kept = turn; turn.assert(record("inside", 1)); });
const told = [];
const tried = (act) => {
  try { act(); told.push(["nothing", ""]); } catch (error) { told.push([error.name, error.message]); }
};
tried(() => kept.assert(record("late", 1)));
tried(() => kept.assert(record("late", 1), { owner: "ops" }));
tried(() => kept.retract(claim));
tried(() => kept.replace(claim, record("late", 1)));
tried(() => kept.put(record("late", 1, 2)));
tried(() => kept.withdraw("late(_)"));
tried(() => kept.send(record("late", 1)));
const waits = space.turn(async (turn) => { await null; turn.send(record("late", 1)); });
await waits.catch((error) => told.push(error.name));
await new Promise((resolve) => setTimeout(resolve, 20)); // an unhandled rejection would end the program
console.log(JSON.stringify([told, await space.matches("inside($n)")]));
await space.close();
"""


async def test_a_turn_that_is_used_after_its_function_is_refused(http: str, tmp_path: Path) -> None:
    told, inside = await run(tmp_path, ENDED, url=http)
    *refused, last = told
    assert len(refused) == 7 and inside == [[1]] and last == "UsageError"
    assert [name for name, text in refused if "this turn has ended" in text] == ["UsageError"] * 7, refused
