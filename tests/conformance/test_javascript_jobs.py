"""The JavaScript client as a member of groups: programs in Node, with a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import dataspace
from dataspace import Map
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
