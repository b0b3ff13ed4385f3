"""Topics are led with ``main``; a client of a space that another daemon leads uses them all the same."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.client.session.events import ConnectionChange
from dataspace.errors import Broken, Refused, Unreachable
from dataspace.wire.packets import TOPICS_ELSEWHERE
from dataspace.wire.verbs import VERBS, Subject
from index.values.values import Map
from tests.conformance.driving import MODULE, node
from tests.conformance.vectors import FOLDER
from tests.server.processes import DaemonProcess, running

pytestmark = pytest.mark.slow

SOON = 240
LEASE = "DATASPACE_SERVE_CLUSTER_LEASE"
OPERATOR = "the secret of an operator"
CLIENT = "the secret of a client"
CONFINED = """
cluster.name = "%s"
[spaces.b]
prefer = "two"
[[tokens]]
name = "operator"
secret = "%s"
[[tokens]]
name = "client"
secret = "%s"
spaces = ["b"]
topics = { publish = ["mine"] }
"""


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DaemonProcess]]:
    """``one`` leads ``main``, and ``two`` the space ``b``, once it has it."""
    monkeypatch.setenv(LEASE, "8s")
    found = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'cluster.name = "{name}"\n[spaces.b]\nprefer = "two"\n')
        found.append(DaemonProcess(postgres_url, "--config", str(path)))
    with running(*found):
        yield found


async def led_apart(pair: list[DaemonProcess], token: str = "") -> None:
    """Returns once the two spaces have two leaders."""
    one = pair[0]
    while True:
        with suppress(Broken, Unreachable):
            async with dataspace.connect(one.url, space="system", read="leader", token=token) as system:
                rows = await system.matches("leader($space, $name, _, _, _)")
            said = {tuple(each) for each in rows} == {("main", "one"), ("b", "two")}
            if said and await leads(one, "main", token) and await leads(pair[1], "b", token):
                return  # what is said of a leader may come before it leads
        await trio.sleep(0.05)


async def leads(daemon: DaemonProcess, space: str, token: str = "") -> bool:
    """True if a daemon leads a space itself."""
    async with dataspace.connect(daemon.url, space=space, read="leader", token=token) as asked:
        told = await asked.status()
    return told["leads"] is True and told["process"] == daemon.process.pid


async def leader(space: dataspace.RemoteSpace) -> object:
    return (await space.status())["process"]


async def test_where_no_daemon_answers_a_first_use_of_a_topic_raises_that(pair: list[DaemonProcess]) -> None:
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with dataspace.connect(pair[1].url, space="b") as b:
            for each in pair:
                each.kill()
            for _ in range(2):
                with pytest.raises((Broken, Unreachable)):
                    async with b.subscribe("t"):
                        pass
                with pytest.raises((Broken, Unreachable)):
                    async with b.publish("t"):
                        pass


@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "durable"])
async def test_a_session_of_another_space_publishes_and_subscribes_and_stays(
    pair: list[DaemonProcess], durable: bool
) -> None:
    one, two = pair
    lost: list[object] = []
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with (
            dataspace.connect(two.url, space="b", on_connection=lambda event: lost.append(event.change)) as b,
            dataspace.connect(one.url) as main,
        ):
            await b.assert_(Record("here", 1))
            async with b.publish("t", durable=durable) as topic:
                async with b.subscribe("t") as seen, main.subscribe("t") as beside:
                    await topic.send(Record("item", 1))
                    await topic.advance(1)
                    for each in (seen, beside):
                        epoch = await each.next_epoch()
                        assert epoch is not None and epoch.items == (Record("item", 1),), "it is one topic"
            if durable:
                assert [each.items async for each in b.completed("t")] == [(Record("item", 1),)]
                await b.end_topic("t")
            await b.assert_(Record("here", 2))
            assert await leader(b) == two.process.pid and await leader(main) == one.process.pid
            assert lost == [ConnectionChange.CONNECTED], "the session has not moved"


async def test_topics_of_a_session_outlive_a_failover_of_their_leader(pair: list[DaemonProcess]) -> None:
    one, two = pair
    urls = [each.url for each in pair]
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with (
            dataspace.connect(urls, space="b") as b,
            b.publish("t", durable=True, name="meter", away=120) as topic,
            b.subscribe("t") as seen,
        ):
            for number in range(3):
                await topic.send(Record("item", number))
                await topic.advance(number + 1)
                epoch = await seen.next_epoch()
                assert epoch is not None and epoch.items == (Record("item", number),)
                if number == 1:
                    await trio.to_thread.run_sync(one.kill)
            await b.assert_(Record("here", 1))
            assert await leader(b) == two.process.pid


async def test_a_session_that_cannot_go_for_topics_learns_where_they_are(pair: list[DaemonProcess]) -> None:
    """As a client without further connections has it; its turns go on."""
    one, two = pair
    with trio.fail_after(SOON):
        await led_apart(pair)
        async with dataspace.connect(two.url, space="b") as b:
            for verb, topic in (("join", "t"), ("lookup", "t"), ("end-topic", "t")):
                with pytest.raises(Refused) as refused:
                    await b.request(verb, Map({"topic": topic}))
                assert (refused.value.code, refused.value.url) == (TOPICS_ELSEWHERE, one.url)
            await b.assert_(Record("here", 1))
            assert await leader(b) == two.process.pid


def test_blocking_clients_and_those_under_asyncio_do_the_same(pair: list[DaemonProcess]) -> None:
    two = pair[1]
    trio.run(led_apart, pair)
    asyncio.run(under_asyncio(two.url))
    with dataspace.connect_blocking(two.url, space="b", timeout=SOON) as b:
        with b.publish("t", retain=1 << 16) as topic:
            topic.send(Record("item", 1))
            topic.advance(1)
            with b.subscribe("t", as_of=0) as seen:
                assert next(iter(seen)).items == (Record("item", 1),)
        b.assert_(Record("here", 1))


async def under_asyncio(url: str) -> None:
    async with (
        dataspace.connect(url, space="b", timeout=SOON) as b,
        b.publish("u", retain=1 << 16) as topic,
    ):
        await topic.send(Record("item", 1))
        await topic.advance(1)
        async with b.subscribe("u", as_of=0) as seen:
            epoch = await seen.next_epoch()
        assert epoch is not None and epoch.items == (Record("item", 1),)
        await b.assert_(Record("here", 1))


async def test_with_one_daemon_topics_need_no_further_connection(tmp_path: Path) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text("[spaces.b]\n")
    daemon = DaemonProcess(tmp_path / "data", "--config", str(path))
    with running(daemon), trio.fail_after(SOON):
        async with dataspace.connect(daemon.url, space="b") as b, b.publish("t") as topic:
            await topic.send(1)
            assert (await b.status())["sessions"] == 1


# -- in JavaScript ------------------------------------------------------------------------------------

PUBLISH: Final = """
import { connect, record } from "%s";
import { tcp } from "%s";
const [url] = JSON.parse(process.argv[1]);
const changes = [];
const options = { transport: tcp, space: "b", onConnection: ({ change }) => changes.push(change) };
const b = await connect(url, options);
await b.assert(record("here", 1));
const topic = await b.publish("t", { durable: true });
const same = await b.subscribe("t");
await topic.send([record("item", 1)]);
await topic.advance(1);
const { items } = await same.read();
await topic.close();
same.close();
const { id } = await b.request("lookup", { topic: "t" });
const numbered = await b.request("topic-number", { topic: "t", id, time: 0 });
await b.endTopic("t");
const gone = await b.subscribe("t").catch(({ code }) => code);
await b.assert(record("here", 2));
const { process: by } = await b.status();
console.log(JSON.stringify([items[0].fields, numbered, gone, by, changes]));
await b.close();
"""


FAILOVER: Final = """
import { createInterface } from "node:readline";
import { connect, record } from "%s";
import { tcp } from "%s";
const [urls] = JSON.parse(process.argv[1]);
const changes = [];
const onConnection = ({ change }) => changes.push(change);
const b = await connect(urls, { transport: tcp, space: "b", onConnection });
const topic = await b.publish("t", { durable: true, name: "meter", away: 120_000 });
const seen = await b.subscribe("t");
const found = [];
for (let number = 0; number < 3; number++) {
  if (number === 2) {
    console.log(JSON.stringify("kill"));
    await new Promise((resolve) => createInterface({ input: process.stdin }).once("line", resolve));
  }
  await topic.send([record("item", number)]);
  await topic.advance(number + 1);
  found.push((await seen.read()).items[0].fields[0]);
}
await topic.close();
seen.close();
await b.assert(record("here", 1));
console.log(JSON.stringify([found, changes]));
await b.close();
process.exit();
"""

LAST: Final = """
import { connect } from "%s";
import { tcp } from "%s";
const [url, leader] = JSON.parse(process.argv[1]);
const options = { transport: tcp, space: "b" };
const named = (error) => error.name;
const main = await connect(leader, { transport: tcp });
const b = await connect(url, options);
const counts = () => Promise.all([b, main].map(async (space) => (await space.status()).sessions));
const until = async (...wanted) => {
  while (String(await counts()) !== String(wanted)) await new Promise((resolve) => setTimeout(resolve, 50));
};
await until(2, 2); // each with that of the daemon that follows
const closing = await connect(url, options);
const late = [closing.publish("u"), closing.subscribe("u")].map((each) => each.catch(named));
await closing.close();
await until(2, 2);
const numbers = [...Array(200).keys()];
const topics = await Promise.all(numbers.map((number) => b.publish(`many ${number}`, { retain: 4096 })));
await Promise.all(topics.map((topic, number) => topic.finish([number], 1)));
const seen = await Promise.all(numbers.map((number) => b.subscribe(`many ${number}`, { asOf: 0 })));
const sums = await Promise.all(seen.map(async (each) => (await each.read()).items[0]));
await until(2, 3); // one more for all topics
console.log(JSON.stringify([await Promise.all(late), sums.every((sum, at) => sum === at)]));
await main.close();
await b.close();
"""

REFUSED: Final = """
import { connect } from "%s";
import { tcp } from "%s";
const [url, token] = JSON.parse(process.argv[1]);
const b = await connect(url, { transport: tcp, space: "b", token });
const uses = [() => b.publish("t"), () => b.subscribe("t"), () => b.endTopic("t"), () => b.publish("mine")];
const told = [];
for (const use of uses) told.push(await use().then(() => "done", (error) => error.code || error.name));
console.log(JSON.stringify(told));
await b.close();
"""

ENDS: Final = """
import { connect } from "%s";
import { tcp } from "%s";
const [url, leader] = JSON.parse(process.argv[1]);
const later = (test) => new Promise((resolve) => {
  const look = async () => ((await test()) ? resolve() : setTimeout(look, 50));
  look();
});
const daemons = await Promise.all([url, leader].map((each) => connect(each, { transport: tcp })));
const rows = (daemon) => daemons[daemon].request("sessions");
const of = async (daemon) => (await rows(daemon)).filter(({ name }) => name === "mine");
const end = async (daemon) => daemons[daemon].request("end-session", { session: (await of(daemon))[0].id });
const open = () => connect(url, { transport: tcp, space: "b", name: "mine", reconnect: false });
const used = async (space) => (await space.publish("t", { retain: 4096 })).close();

const b = await open();
await used(b);
await end(1); // the further session
await later(() => used(b).then(() => true, () => false));
await end(0); // that of the space
await later(async () => !(await of(1)).length);

const closing = await open();
const turns = [...Array(200).keys()].map((number) => closing.send(number));
const closed = closing.close();
const late = await closing.subscribe("t").then(() => "open", ({ name }) => name);
await Promise.all([...turns, closed]);
await later(async () => !(await of(1)).length);
for (const each of daemons) await each.close();
console.log(JSON.stringify(late));
"""

VERB: Final = """
import { isOfTopics } from "%s";
console.log(JSON.stringify(JSON.parse(process.argv[1]).map(isOfTopics)));
"""


def run_javascript(program: str, *given: object) -> Any:
    """Returns what a program in Node prints as JSON; it ends by itself once its connections are closed."""
    done = subprocess.run(
        javascript(program, *given), capture_output=True, text=True, timeout=SOON, check=False
    )
    assert not done.returncode and not done.stderr, done.stderr
    return json.loads(done.stdout)


def javascript(program: str, *given: object) -> list[str]:
    """Returns the command of a program in Node."""
    modules = [MODULE, FOLDER / "drivers" / "tcp.mjs"][: program.count("%s")]
    if program is VERB:
        modules = [MODULE.with_name("topics.js")]
    code = program % tuple(each.as_uri() for each in modules)
    return [node(), "--no-warnings", "--input-type=module", "-e", code, json.dumps(given)]


async def test_a_session_in_javascript_publishes_and_subscribes_and_stays(pair: list[DaemonProcess]) -> None:
    two = pair[1]
    with trio.fail_after(SOON):
        await led_apart(pair)
        told = await trio.to_thread.run_sync(run_javascript, PUBLISH, two.url)
    assert told == [[1], 0, "no-topic", two.process.pid, ["connected"]]


async def test_topics_of_a_session_in_javascript_outlive_a_failover_of_their_leader(
    pair: list[DaemonProcess],
) -> None:
    one = pair[0]
    with trio.fail_after(SOON):
        await led_apart(pair)
        command = javascript(FAILOVER, [each.url for each in reversed(pair)])
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None  # pipes
        assert b"kill" in await process.stdout.receive_some()
        await trio.to_thread.run_sync(one.kill)
        await process.stdin.send_all(b"\n")
        said = b"".join([bytes(chunk) async for chunk in process.stdout])
        assert await process.wait() == 0
    assert json.loads(said) == [[0, 1, 2], ["connected"]], "the session of the space has not moved"


async def test_many_uses_in_javascript_share_a_connection_and_a_closed_client_leaves_none(
    pair: list[DaemonProcess],
) -> None:
    one, two = pair
    with trio.fail_after(SOON):
        await led_apart(pair)
        told = await trio.to_thread.run_sync(run_javascript, LAST, two.url, one.url)
    assert told == [["Closed", "Closed"], True]


async def test_the_further_session_in_javascript_ends_with_the_client_and_is_opened_again_once_ended(
    pair: list[DaemonProcess],
) -> None:
    """Also of a client that does not connect again by itself."""
    one, two = pair
    with trio.fail_after(SOON):
        await led_apart(pair)
        told = await trio.to_thread.run_sync(run_javascript, ENDS, two.url, one.url)
    assert told in {"open", "Closed"}


async def test_rights_on_topics_hold_where_a_client_is_sent(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python and JavaScript, with a token that may use one topic and one space."""
    monkeypatch.setenv(LEASE, "8s")
    pair = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.toml"
        path.write_text(CONFINED % (name, OPERATOR, CLIENT))
        pair.append(DaemonProcess(postgres_url, "--config", str(path)))
    with running(*pair), trio.fail_after(SOON):
        await led_apart(pair, OPERATOR)
        said = await trio.to_thread.run_sync(run_javascript, REFUSED, pair[1].url, CLIENT)
        assert said == ["not-allowed", "not-allowed", "not-allowed", "done"]
        async with dataspace.connect(pair[1].url, space="b", token=CLIENT) as b:
            with pytest.raises(Refused) as refused:
                async with b.publish("t"):
                    pass
            assert refused.value.code == "not-allowed"
            async with b.publish("mine") as topic:
                await topic.send(1)


def test_which_verbs_are_about_topics_is_as_in_python() -> None:
    verbs = list(VERBS)
    said = run_javascript(VERB, *verbs)
    assert said == [VERBS[verb].subject is Subject.TOPICS for verb in verbs]
