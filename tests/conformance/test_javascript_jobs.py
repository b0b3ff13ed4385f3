"""The JavaScript client as a member of groups: programs in Node, with a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map
from tests.conformance.driving import MODULE
from tests.conformance.test_javascript_live import http, run
from tests.ports import free_port
from tests.server.processes import DaemonProcess

__all__ = ["http"]

pytestmark = pytest.mark.slow

SETTLING = """
const space = await connect(url, { name: "member" });
const steps = [];
const chosen = { group: "w", inFlight: 3, attempts: 2, ackWithin: 60_000 };
const jobs = await space.consume("job($id, $what)", chosen).ready;
await space.turn((draft) => { for (let n = 0; n < 5; n++) draft.send(record("job", n, `work ${n}`)); });
const one = await jobs.take();
steps.push([one.id[0], one.named, one.captures, one.attempt, one.isMessage, jobs.ackWithin]);
const turn = space.turn((draft) => draft.assert(record("result", 0), { owner: "results" }), { done: [one] });
const later = space.send(record("later", 0)); // not awaited: in the order of the calls
steps.push([(await turn) < (await later), one.settled, await space.matches("result($n)")]);
steps.push(await one.done().catch((error) => [error.name, /settled already/.test(error.message)]));
steps.push(await space.turn(() => {}, { done: [{}] }).catch((error) => error.name));

const two = await jobs.take();
await two.again({ reason: "once" });
const three = await jobs.take();
const four = await jobs.take();
await jobs.done(three, four);
const five = await jobs.take();
await five.dead("no luck");
const retried = await jobs.take();
steps.push([[two, three, four, five, retried].map((job) => job.named.id), retried.attempt]);
await retried.again({ reason: "twice" });
steps.push((await space.matches("dead($g, _, _, job($id, _), $why, $n)")).sort());

const other = space.consume(null, { group: "w" });
await other.ready;
await space.send(record("job", 9, "left"));
for await (const job of jobs) {
  steps.push(job.named.id);
  break; // which leaves the group, and gives the job back
}
const again = await other.take();
steps.push([again.named.id, again.attempt]);
await again.extend();
await again.done();
const differs = space.consume("job($x)", { group: "w" });
steps.push(await differs.ready.catch((error) => [error.name, error.code]));
for (const options of [{}, { group: "w", inFlight: 0 }, { group: "w", nonsense: 1 }]) {
  try { space.consume("job($x)", options); } catch (error) { steps.push(error.name); }
}
await space.request("group-alter", { group: "w", what: "delete" });
steps.push([await other.take() ?? "over"]);
await space.close();
console.log(JSON.stringify(steps));
"""


async def test_a_member_settles_each_job_once(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, SETTLING, url=http)
    assert told == [
        ["w", {"id": 0, "what": "work 0"}, [0, "work 0"], 1, True, 60_000],
        [True, True, [[0]]],
        ["UsageError", True],
        "UsageError",
        [[1, 2, 3, 4, 1], 2],
        [["w", 1, "twice", 2], ["w", 4, "no luck", 0]],
        9,
        [9, 1],
        ["Refused", "group-differs"],
        "UsageError",
        "UsageError",
        "UsageError",
        ["over"],
    ]


FURTHER = """
const space = await connect(url);
const limits = { backoff: [500, 3_600_000], mostOut: 2, rate: 100, exclusive: true };
const options = { key: "id", kinds: "+-!", priority: "id", ...limits };
const jobs = await space.consume("task($id)", { group: "v", inFlight: 5, ...options }).ready;
const claim = await space.assert(record("task", 1));
const came = await jobs.take();
await claim.retract();
const went = await jobs.take();
await came.done();
await space.send(record("task", 2));
const sent = await jobs.take();
const causes = [await came.cause(), await went.cause(), await sent.cause()];
const peeked = await space.peek("v", { most: 1 });
console.log(JSON.stringify([
  [came.isEnding, came.isMessage, went.isEnding, went.isMessage, went.named],
  [peeked.undone, peeked.jobs.length, peeked.jobs[0].state],
  [peeked.options.backoffs.map(Number), peeked.options.most_out],
  [causes.map((owners) => owners.length), causes[0][0].startsWith("session:"), causes[0][0] === causes[1][0]],
]));
await space.close();
"""


async def test_a_group_with_further_options_is_made_and_looked_at(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, FURTHER, url=http)
    assert told == [
        [False, False, True, False, {"id": 1}],
        [2, 1, "out"],
        [[0.5, 3600], 2],
        [[1, 1, 0], True, True],
    ]


LATE = """
const space = await connect(url);
const late = await connect(url);
const steps = [];
const slow = await late.consume("job($id)", { group: "w", ackWithin: 1000 }).ready;
await space.send(record("job", 1));
const old = await slow.take();
const jobs = space.consume(null, { group: "w" });
const now = await jobs.take();
steps.push([now.attempt, now.token > old.token, JSON.stringify(now.id) === JSON.stringify(old.id)]);
while (!old.lost) await new Promise((resolve) => setTimeout(resolve, 10));
old.lost = false; // as if that had not come yet
const fill = (draft) => draft.assert(record("result", 1), { owner: "results" });
const told = (error) => [error.name, error.code, error.lost.length, old.lost];
steps.push(await late.turn(fill, { done: [old] }).catch(told));
steps.push(await late.turn(fill, { done: [old] }).catch(told));
steps.push(await space.turn(fill, { done: [old] }).catch((error) => error.name));
steps.push(await space.matches("result($n)"));
await now.done();
slow.close();

const seen = [];
const working = jobs.run(async (job) => {
  seen.push([job.named.id, job.attempt]);
  if (job.named.id === 2 && job.attempt === 1) throw new Error("once");
}, { tasks: 2 });
for (const n of [2, 3]) await space.send(record("job", n));
while (seen.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
await space.sync();
jobs.close();
await working;
steps.push(seen.sort());
await late.close();
await space.close();
console.log(JSON.stringify(steps));
"""


async def test_a_late_member_changes_nothing(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, LATE, url=http)
    lost = ["DeliveryLost", "not-yours", 1, True]
    assert told == [[2, True, True], lost, lost, "UsageError", [], [[2, 1], [2, 2], [3, 1]]]


KILLED = """
const space = await connect(url);
const jobs = space.consume("job($id)", { group: "w", inFlight: 3, ackWithin: 60_000 });
await jobs.ready;
await space.turn((draft) => { for (let n = 0; n < 4; n++) draft.send(record("job", n)); });
const [a, b, c] = [await jobs.take(), await jobs.take(), await jobs.take()];
const before = [a.token, b.token, c.token];
await a.done();
await space.assert(record("ready"));
while (!space.reconnects) await new Promise((resolve) => setTimeout(resolve, 20));
const fill = (draft) => draft.assert(record("result", b.named.id), { owner: "results" });
await space.turn(fill, { done: [b] });
await c.done();
const last = await jobs.take();
await last.done();
const claim = await space.assert(record("job", 5));
const fact = await jobs.take();
await claim.retract();
while (!fact.gone) await new Promise((resolve) => setTimeout(resolve, 10));
await fact.done();
const rows = await space.matches("result($n)");
console.log(JSON.stringify([c.token > before[2], c.lost, last.named.id, last.attempt, rows]));
await space.close();
"""


async def test_a_member_keeps_its_jobs_over_a_killed_daemon(tmp_path: Path) -> None:
    port = free_port()
    daemon = DaemonProcess(tmp_path / "data", "--listen", f"http:127.0.0.1:{port}")
    daemon.start()
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            async with dataspace.connect(daemon.url) as witness:
                await witness.first("ready()", timeout=30)
            await trio.to_thread.run_sync(daemon.kill)
            await trio.to_thread.run_sync(daemon.start)

        nursery.start_soon(kill)
        told = await run(tmp_path, KILLED, url=f"http://127.0.0.1:{port}")
    async with dataspace.connect(daemon.url) as space:
        answer: Any = await space.request("groups", Map({}))
        (group,) = answer
        assert (group["undone"], group["dead"]) == (0, 0)
    daemon.stop()
    assert told == [True, False, 3, 1, [[1]]]


SHARED = """
import { webSocket } from "STATIC/transport.js";
let turns = 0;
const transport = (address, events) => {
  const link = webSocket(address, events);
  const send = (packet) => { turns += packet[1] === 2; link.send(packet); };
  return { send, close: link.close };
};
const space = await connect(url, { transport });
const steps = [];
const count = 200;
const chosen = { group: "w", inFlight: count, ackWithin: 60_000 };
const jobs = await space.consume("job($id)", chosen).ready;
const all = Array.from({ length: count }, (_, n) => n);
const send = (from) => space.turn((draft) => all.forEach((n) => draft.send(record("job", from + n))));
const take = () => Promise.all(all.map(() => jobs.take()));
await send(0);
let out = await take();
turns = 0;
const [first, ...rest] = out.map((job) => job.done());
await first;
await Promise.all(rest);
steps.push(turns, out.every((job) => job.settled && !job.lost));
steps.push(await out[0].done().catch((error) => error.name));

// one of them is lost: the others are done, and each hears of itself
await send(1000);
out = await take();
await space.request("settle", { group: "w", again: [out[7].cell], blame: false });
const again = await jobs.take();
const ends = await Promise.allSettled(out.map((job) => job.done()));
const { name, lost } = ends[7].reason;
steps.push(ends.filter(({ status }) => status === "fulfilled").length, name, lost.length);
steps.push(out[7].lost, again.named.id);
await again.done();

// what waits is sent before the end of the member
await send(2000);
out = await take();
turns = 0;
const last = out.map((job) => job.done());
await Promise.resolve();
jobs.close();
steps.push((await Promise.allSettled(last)).filter(({ status }) => status === "rejected").length);
steps.push(turns <= 3, (await space.request("groups", { group: "w" }))[0].undone);
await space.close();
console.log(JSON.stringify(steps));
"""


async def test_jobs_that_are_done_share_turns(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, SHARED.replace("STATIC", MODULE.parent.as_uri()), url=http)
    assert told == [1, True, "UsageError", 199, "DeliveryLost", 1, True, 1007, 0, True, 0]


WORKED = """
const space = await connect(url, { wait: 30_000 });
const count = 2000;
const jobs = await space.consume("job($id)", { group: "w", inFlight: 32, ackWithin: 60_000 }).ready;
for (let n = 0; n < count; n += 100) {
  await space.turn((draft) => { for (let at = n; at < n + 100; at++) draft.send(record("job", at)); });
}
const done = new Map();
const work = async () => {
  for (let job = await jobs.take(); job; job = await jobs.take()) {
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    try {
      await job.done();
      done.set(job.named.id, (done.get(job.named.id) ?? 0) + 1);
    } catch (error) {
      if (error.name !== "DeliveryLost") throw error; // it comes again, or is done: the answer was lost
    }
    if (jobs.waiting === 0 && (await space.request("groups", { group: "w" }))[0].undone === 0) jobs.close();
  }
};
await Promise.all(Array.from({ length: 16 }, work));
const [{ undone, dead }] = await space.request("groups", { group: "w" });
console.log(JSON.stringify([done.size, Math.max(...done.values()), undone, dead, space.reconnects]));
await space.close();
"""


async def test_shared_turns_report_each_job_once_over_killed_daemons(tmp_path: Path) -> None:
    port = free_port()
    daemon = DaemonProcess(tmp_path / "data", "--listen", f"http:127.0.0.1:{port}")
    daemon.start()
    told: list[Any] = []

    async def program() -> None:
        told.extend(await run(tmp_path, WORKED, url=f"http://127.0.0.1:{port}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(program)
        for seconds in (0.8, 1.6, 1.6):  # after a start nothing is handed out for a second
            await trio.sleep(seconds)
            await trio.to_thread.run_sync(daemon.kill)
            await trio.to_thread.run_sync(daemon.start)
    daemon.stop()
    size, most, undone, dead, reconnects = told
    assert (most, undone, dead) == (1, 0, 0)
    assert size > 1900  # others are done as well, but their answers were lost with a connection
    assert reconnects


TOPIC = """
const space = await connect(url);
const publication = await space.publish("t", { durable: true });
await publication.send(["a", { n: 1 }]);
await publication.close();
const jobs = await space.consume(null, { group: "items", topic: "t", start: 1, inFlight: 2 }).ready;
const two = [await jobs.take(), await jobs.take()];
await space.turn((draft) => draft.assert(record("result", 1), { owner: "results" }), { done: two });
const told = two.map((job) => [job.named, job.epoch, job.position, job.topicTime, job.crashed]);
console.log(JSON.stringify(told));
await space.close();
"""


async def test_a_member_gets_the_items_of_a_topic(http: str, tmp_path: Path) -> None:
    told = await run(tmp_path, TOPIC, url=http)
    assert told == [[{"item": "a"}, 1, 0, 0, ""], [{"item": {"n": 1}}, 1, 1, 0, ""]]
