"""The JavaScript client sends a request again where twice is as good as once, as the one in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.transport.addresses import parse_url
from dataspace.wire.verbs import VERBS, repetition
from index.values.values import Map
from server.config.model import Config
from server.daemon.serve import serve
from server.topics.catalogue import TopicEntry
from server.topics.following import TopicConnection
from tests.conformance.driving import MODULE, node
from tests.conformance.vectors import FOLDER

pytestmark = pytest.mark.slow

PROGRAM = """
import { connect, record } from "%s";
import { tcp } from "%s";
const [, , url] = process.argv;
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
let mode = "";
let cut = () => {};
const cutting = (at, heard) => {
  if (mode === "refuse") throw new Error("refused");
  let over = false;
  const message = (bytes) => { if (mode !== "down" && !over) heard.message(bytes); };
  const inner = tcp(at, { ...heard, message });
  cut = () => { over = true; inner.close(); heard.closed("cut"); };
  return { send: (bytes) => { if (mode !== "up") inner.send(bytes); }, close: () => inner.close() };
};
const witness = await connect(url, { transport: tcp });
let space, jobs;
let number = 0;
const job = async () => { await witness.send(record("job", ++number)); return jobs.take(); };
const idle = async () => {
  for (;;) {
    const [{ undone, out }] = await witness.request("groups", { group: "w" });
    if (!undone && !out) return true;
    await sleep(5);
  }
};
const again = async () => { const next = await jobs.take(); await next.done(); return next.attempt; };
const matches = (pattern) => witness.matches(pattern);
const result = (draft) => draft.assert(record("result", 1), { owner: "results" });
const put = (space) => space.put(record("key", 1), { owner: "people", by: "key(_)" });
const published = async (topic) => {
  const publication = await space.publish(topic);
  await publication.send([1]);
  await publication.close();
  return 1;
};
const inDoubt = (error) => [error.name, /so it may have taken effect/.test(error.message)];
const calls = {
  sync: [() => null, () => space.sync().then(() => 1), () => 1],
  put: [() => null, () => put(space).then(() => 1), () => matches("key($n)")],
  withdraw: [() => witness.assert(record("old", 1), { owner: "people" }),
    () => space.request("withdraw", { owner: "people", pattern: record("old") }).then(() => 1),
    () => matches("old($n)")],
  publish: [() => null, () => published(`t${++number}`), () => 1],
  done: [job, (one) => one.done().then(() => 1), idle],
  turn: [job, (one) => space.turn(result, { done: [one] }).then(() => 1), idle],
  extend: [job, (one) => one.extend().then(() => 1), (one) => one.done().then(idle)],
  again: [job, (one) => one.again().then(() => 1), again],
  run: [() => null, async () => {
    let came = 0, ended;
    const over = new Promise((resolve) => (ended = resolve));
    const other = await space.consume("task($n)", { group: "tasks" }).ready;
    await space.turn((draft) => draft.send(record("task", 1)));
    const working = other.run(async () => { if (came++) { ended(); return; } throw new Error("once"); });
    await over;
    await space.sync();
    other.close();
    await working;
    return came;
  }, () => 1],
  "end-topic": [async () => { await (await witness.publish("kept", { durable: true })).close(); },
    () => space.request("end-topic", { topic: "kept" }).then(() => 1), () => 1],
};
const told = {};
for (const [name, [prepare, act, check]] of Object.entries(calls)) {
  space = await connect(url, { transport: cutting, grace: 20_000 }); // each anew, as pauses grow
  jobs = await space.consume("job($n)", { group: "w" }).ready;
  for (const when of ["refuse", "up", "down"]) {
    const made = await prepare();
    await space.sync();
    mode = when;
    if (when === "refuse") cut();
    const answer = act(made).catch(inDoubt);
    await sleep(60);
    mode = "";
    if (when !== "refuse") cut();
    (told[name] ??= []).push([await answer, await check(made)]);
  }
  await space.close();
}
await witness.close();
console.log(JSON.stringify(told));
"""

IN_DOUBT = ["Broken", True]


async def test_calls_whose_connection_is_lost(tmp_path: Path, nursery: trio.Nursery) -> None:
    (address,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path / "data"))
    url = parse_url(address).url
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM % (MODULE.as_uri(), (FOLDER / "drivers" / "tcp.mjs").as_uri()))
    command = [node(), "--no-warnings", str(program), url]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    in_doubt = told.pop("end-topic")
    assert [answer for answer, _ in in_doubt] == [1, IN_DOUBT, IN_DOUBT]
    after = {"put": [[1]], "withdraw": [], "again": 2}
    idle = dict.fromkeys(("done", "turn", "extend"), True)
    came = {"run": 2}
    assert told == {name: [[came.get(name, 1), (after | idle).get(name, 1)]] * 3 for name in told}


REFUSED = """
import { connect } from "%s";
import { tcp } from "%s";
const [, , url] = process.argv;
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
let cut = () => {};
const cutting = (at, heard) => {
  const inner = tcp(at, heard);
  cut = () => { inner.close(); heard.closed("cut"); };
  return inner;
};
const told = {};
for (const then of ["flush", "send", "close"]) {
  const space = await connect(url, { transport: cutting, grace: 20_000 });
  const options = { durable: true, name: "me", away: 30_000 };
  const topic = await space.publish(then, options);
  await topic.send([1]);
  await topic.flush();
  await topic.send([2]); // refused
  await topic.finish([3], 5).catch(() => {}); // refused as well
  await sleep(100);
  cut();
  await space.sync();
  await sleep(20);
  const code = await topic[then](...(then === "send" ? [[4]] : [])).then(() => "none", (error) => error.code);
  const again = await space.publish(then, options);
  told[then] = [code, again.time];
  await again.finish([2, 3], 5);
  await again.close();
  await space.close();
}
console.log(JSON.stringify(told));
"""


async def test_a_refusal_is_thrown_though_the_line_breaks_before_the_next_call(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what follows the refused step is sent as if that had been taken."""
    really = TopicConnection._check_batch

    def check_batch(at: TopicConnection, entry: TopicEntry, items: bytes) -> None:
        if items == pack((2,)):
            raise Refused("disk-full", "durable topics take nothing: the disk is full")
        really(at, entry, items)

    monkeypatch.setattr(TopicConnection, "_check_batch", check_batch)
    (address,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path / "data"))
    program = tmp_path / "program.mjs"
    program.write_text(REFUSED % (MODULE.as_uri(), (FOLDER / "drivers" / "tcp.mjs").as_uri()))
    command = [node(), "--no-warnings", str(program), parse_url(address).url]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {then: ["disk-full", 0] for then in ("flush", "send", "close")}


CLASSES = """
import { repetition } from "%s";
console.log(JSON.stringify(JSON.parse(process.argv[2]).map(([verb, args]) => repetition(verb, args))));
"""


async def test_each_request_is_sent_again_as_the_table_of_verbs_says(tmp_path: Path) -> None:
    asked: list[tuple[str, dict[str, str]]] = [(verb, {}) for verb in (*VERBS, "anything")]
    for verb, row in VERBS.items():
        if name := row.by[0]:
            asked += [(verb, {name: word}) for word in row.arguments[name].choices]
    program = tmp_path / "program.mjs"
    program.write_text(CLASSES % MODULE.with_name("repeating.js").as_uri())
    done = await trio.run_process([node(), str(program), json.dumps(asked)], capture_stdout=True)
    known = [repetition(verb, Map(arguments)) for verb, arguments in asked]
    assert json.loads(done.stdout) == [{"changes": each.changes, "isSafe": each.is_safe} for each in known]
