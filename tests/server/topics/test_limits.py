"""Every bounded thing of topics at its bound, and beyond: a refusal names the limit, and no session ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import pytest
import trio

from dataspace.codec import MAX_DEPTH, pack
from dataspace.topics import messages as forms
from dataspace.topics.times import END, MAX_DIMENSIONS
from dataspace.wire import packets as p
from dataspace.wire.verbs import MOST_AGE
from index.values.values import Map, Value
from relay.journal.journal import MAX_READERS
from relay.topics.topic import MAX_COUNT, MAX_HELD, MAX_OPEN, MAX_PARTITIONS, MAX_TOPIC_TIMES, MAX_UPPER
from server.config.model import Limits
from server.config.principals import Quotas
from server.topics.catalogue import MAX_RETAIN, MAX_TOPICS
from server.topics.durable import MAX_AWAY, MAX_DURABLE_RETAIN as MAX_LASTING
from server.topics.following import MAX_NAME, MAX_PRODUCERS, MAX_TIMES, SPARE
from tests.server.peers import Peer

numbers = count(100)
EMPTY = pack(())
LARGEST = Limits().frame_bytes - SPARE


async def ask(peer: Peer, verb: str, arguments: dict[str, Value]) -> p.Packet | None:
    await peer.say(p.Request(next(numbers), verb, Map(arguments)))
    return await peer.hear()


async def value(peer: Peer, verb: str, arguments: dict[str, Value]) -> Map:
    answer = await ask(peer, verb, arguments)
    assert isinstance(answer, p.Answer) and isinstance(answer.value, Map), answer
    return answer.value


async def steps(peer: Peer, producer: Value, *given: Value) -> p.Packet | None:
    assert isinstance(producer, int)
    await peer.say(p.Produce(next(numbers), producer, given))
    return await peer.hear()


def refused(packet: p.Packet | None, code: str, *said: str) -> None:
    assert isinstance(packet, p.Denied | p.Error), packet
    assert packet.code == code and all(each in packet.text for each in said), packet


@asynccontextmanager
async def greeted(url: str) -> AsyncIterator[Peer]:
    async with Peer(url) as peer:
        await peer.greet(f"~limits{next(numbers)}")
        yield peer
        assert isinstance(await ask(peer, "sync", {}), p.Answer), "the session goes on"


@dataclass(frozen=True)
class Argument:
    """An argument of ``join``: what is allowed at most, what is beyond, and what is said of that."""

    name: str
    most: Value
    beyond: Value
    code: str
    said: str
    more: tuple[tuple[str, Value], ...] = ()


DURABLE: tuple[tuple[str, Value], ...] = (("durable", True),)
NAMED: tuple[tuple[str, Value], ...] = (*DURABLE, ("name", "n"))


@pytest.mark.parametrize(
    "case",
    [
        Argument("topic", "t" * MAX_NAME, "t" * (MAX_NAME + 1), "limit", f"name of {MAX_NAME + 1}"),
        Argument("name", "n" * MAX_NAME, "n" * (MAX_NAME + 1), "limit", f"limit {MAX_NAME}", DURABLE),
        Argument("partitions", MAX_PARTITIONS, MAX_PARTITIONS + 1, "bad-request", f"to {MAX_PARTITIONS}"),
        Argument("partitions", 1, 0, "bad-request", "partitions must be from 1"),
        Argument("partition", 0, 1, "bad-request", "partition 1, there are 0 to 0"),
        Argument("dimensions", MAX_DIMENSIONS, MAX_DIMENSIONS + 1, "bad-request", f"to {MAX_DIMENSIONS}"),
        Argument("retain", MAX_RETAIN, MAX_RETAIN + 1, "limit", f"limit {MAX_RETAIN}"),
        Argument(
            "retain",
            MAX_LASTING,
            MAX_LASTING + 1,
            "limit",
            f"limit {MAX_LASTING}",
            DURABLE,
        ),
        Argument("retain", 0, -1, "limit", "retain=-1"),
        Argument("away", MAX_AWAY, MAX_AWAY + 1, "limit", f"limit {MAX_AWAY}", NAMED),
        Argument("away", 0, -1, "bad-request", "away must be from 0", NAMED),
        Argument("age", MOST_AGE, MOST_AGE * 2, "bad-request", "up to 10000000000 seconds", DURABLE),
        Argument("age", 1, 10**400, "bad-request", "age must be above 0", DURABLE),
        Argument("time", END - 1, END, "bad-request", "an integer from 0 to 2^63-1"),
        Argument("time", 0, -1, "bad-request", "an integer from 0 to 2^63-1"),
    ],
    ids=lambda case: f"{case.name} {case.beyond!r:.20}",
)
async def test_what_joins_is_within_its_limits(url: str, case: Argument) -> None:
    usual: dict[str, Value] = {"topic": "t", **dict(case.more)}
    async with greeted(url) as peer:
        refused(await ask(peer, "join", {**usual, case.name: case.beyond}), case.code, case.said)
        await value(peer, "join", {**usual, case.name: case.most})


@dataclass(frozen=True)
class Steps:
    """Steps at a bound, one more, and what is said of that."""

    name: str
    within: Callable[[], tuple[Value, ...]]
    beyond: Value
    code: str
    said: str


def nested(levels: int) -> Value:
    made: Value = 0
    for _ in range(levels):
        made = (made,)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
@pytest.mark.parametrize(
    "case",
    [
        Steps(
            "open epochs",
            lambda: tuple([(forms.SEND, time, EMPTY) for time in range(MAX_OPEN)]),
            (forms.SEND, MAX_OPEN, EMPTY),
            "limit",
            f"limit {MAX_OPEN} open epochs",
        ),
        Steps(
            "open epochs, finished",
            lambda: tuple([(forms.SEND, time, EMPTY) for time in range(1, MAX_OPEN + 1)]),
            (forms.FINISH, 0, EMPTY, ((0, -1), (1, 1))),
            "limit",
            f"limit {MAX_OPEN} open epochs",
        ),
        Steps(
            "times held",
            lambda: ((forms.CHANGE, tuple([(time, 1) for time in range(1, MAX_HELD)])),),
            (forms.CHANGE, ((MAX_HELD, 1),)),
            "limit",
            f"capabilities for {MAX_HELD + 1} times, limit {MAX_HELD}",
        ),
        Steps(
            "capabilities for one time",
            lambda: ((forms.CHANGE, ((0, MAX_COUNT - 1),)),),
            (forms.CHANGE, ((0, 1),)),
            "limit",
            f"more than {MAX_COUNT} times",
        ),
        Steps(
            "capabilities for one time, at once",
            tuple,
            (forms.CHANGE, ((0, 1 << 80),)),
            "limit",
            f"more than {MAX_COUNT} times",
        ),
        Steps(
            "last time",
            lambda: ((forms.SEND, END - 1, EMPTY),),
            (forms.SEND, END, EMPTY),
            "bad-request",
            "an integer from 0 to 2^63-1",
        ),
        Steps(
            "last time held",
            lambda: ((forms.CHANGE, ((0, -1), (END - 1, 1))),),
            (forms.CHANGE, ((END - 1, -1), (END, 1))),
            "bad-request",
            "an integer from 0 to 2^63-1",
        ),
        Steps(
            "depth of items",
            lambda: ((forms.SEND, 0, pack(nested(MAX_DEPTH))),),
            (forms.SEND, 0, b"\x91" * (MAX_DEPTH + 1) + b"\x00"),
            "limit",
            "items of a batch cannot be read",
        ),
        Steps(
            "elements of items",
            tuple,
            (forms.SEND, 0, b"\xdd\x00\x20\x00\x00" + bytes(1 << 21)),
            "limit",
            "items of a batch cannot be read",
        ),
    ],
    ids=lambda case: case.name,
)
async def test_what_a_producer_does_is_within_its_limits(url: str, case: Steps, durable: bool) -> None:
    async with greeted(url) as peer:
        made = await value(peer, "join", {"topic": "t", "durable": durable})
        within = case.within()
        for at in range(0, len(within), 10_000):
            answer = await steps(peer, made["producer"], *within[at : at + 10_000])
            assert isinstance(answer, p.Answer), answer
        refused(await steps(peer, made["producer"], case.beyond), case.code, case.said)
        assert isinstance(await steps(peer, made["producer"], (forms.LEAVE,)), p.Answer)


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
@pytest.mark.parametrize("open", [True, False], ids=["open", "completed"])
async def test_the_latest_times_of_a_partition_are_bounded_where_none_is_before_another(
    url: str, durable: bool, open: bool
) -> None:
    """The upper frontier of a topic with two dimensions, of which nothing is ever given back."""
    last = MAX_UPPER
    times = [(at, last - at) for at in range(last)]
    async with greeted(url) as peer:
        made = await value(peer, "join", {"topic": "t", "dimensions": 2, "durable": durable})
        given: list[Value] = []
        for time in times:
            given.append((forms.SEND, time, EMPTY))
            if not open:
                after = (time[0] + 1, 0)
                before = (time[0], 0)
                given.append((forms.CHANGE, ((before, -1), (after, 1))))
        assert isinstance(await steps(peer, made["producer"], *given), p.Answer)
        beyond = await steps(peer, made["producer"], (forms.SEND, (last, 0), EMPTY))
        refused(beyond, "limit", f"{MAX_UPPER} latest times of partition 0", f"limit {MAX_UPPER}")
        later = await steps(peer, made["producer"], (forms.SEND, (last, 1), EMPTY))
        assert isinstance(later, p.Answer), "it takes the place of another"


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
async def test_times_that_are_held_are_bounded_where_none_is_before_another(url: str, durable: bool) -> None:
    """A step on a frontier of 4 096 such times took 8 s."""
    most = MAX_TOPIC_TIMES
    half = tuple([((at, most - at), 1) for at in range(1, most // 2 + 1)])
    more = tuple([((at, most - at), 1) for at in range(most // 2 + 1, most + 1)])
    async with greeted(url) as peer:
        options: dict[str, Value] = {"topic": "t", "dimensions": 2, "durable": durable}
        first = (await value(peer, "join", options))["producer"]
        other = (await value(peer, "join", options))["producer"]
        assert isinstance(await steps(peer, first, (forms.CHANGE, half)), p.Answer)
        assert isinstance(await steps(peer, other, (forms.CHANGE, more)), p.Answer)
        beyond = ((forms.CHANGE, (((most, most), 1),)), (forms.FINISH, (0, 0), EMPTY, (((most, most), 1),)))
        for step in beyond:
            refused(await steps(peer, first, step), "limit", f"{most + 1} times", f"limit {most}")
        joining = await ask(peer, "join", {**options, "time": (most, most)})
        refused(joining, "limit", f"{most + 1} times", f"limit {most}")
        assert isinstance(await ask(peer, "join", {**options, "time": (1, most - 1)}), p.Answer)
        one_for_another = (forms.CHANGE, (((2, most - 2), -1), ((most, most), 1)))
        assert isinstance(await steps(peer, first, one_for_another), p.Answer)


@pytest.mark.parametrize("size", [LARGEST, LARGEST + 1], ids=["at", "beyond"])
async def test_a_batch_fills_a_frame_and_no_more(url: str, size: int) -> None:
    batch = b"\x91\xc6" + (size - 6).to_bytes(4, "big") + bytes(size - 6)
    async with greeted(url) as peer:
        made = await value(peer, "join", {"topic": "t"})
        answer = await steps(peer, made["producer"], (forms.SEND, 0, batch))
        if size == LARGEST:
            assert isinstance(answer, p.Answer), answer
        else:
            refused(answer, "limit", f"limit {LARGEST}", "limits.frame_bytes")


async def test_open_epochs_of_a_durable_topic_hold_what_it_retains(url: str) -> None:
    async with greeted(url) as peer:
        made = await value(peer, "join", {"topic": "t", "durable": True, "retain": 1000})
        half = pack((b"x" * 490,))
        assert isinstance(await steps(peer, made["producer"], (forms.SEND, 0, half)), p.Answer)
        full = await steps(peer, made["producer"], (forms.SEND, 1, half))
        refused(full, "limit", "open epochs hold", "the limit is retain=1000")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"partitions": (0,) * (MAX_PARTITIONS + 1)}, "limit", f"limit {MAX_PARTITIONS}"),
        ({"partitions": (1,)}, "bad-request", "partition 1, there are 0 to 0"),
        ({"partitions": ()}, "bad-request", "a partition at least"),
        ({"as_of": tuple(range(MAX_TIMES + 1))}, "limit", f"limit {MAX_TIMES}"),
        ({"as_of": ()}, "bad-request", "as of no time"),
        ({"as_of": (END,)}, "bad-request", "an integer from 0 to 2^63-1"),
    ],
    ids=lambda each: f"{each!r:.30}",
)
async def test_what_subscribes_is_within_its_limits(
    url: str, options: dict[str, Value], code: str, said: str
) -> None:
    async with greeted(url) as peer:
        await value(peer, "join", {"topic": "t"})
        spec: dict[str, Value] = {"kind": "topic", "topic": "t"}
        await peer.say(p.Open(1, Map({**spec, **options}), 9, 1 << 20))
        refused(await peer.hear(), code, said)
        await peer.say(p.Open(2, Map({**spec, "partitions": (0,) * MAX_PARTITIONS}), 9, 1 << 20))
        assert isinstance(await peer.hear(), p.Values)


@pytest.mark.parametrize(
    ("verb", "options", "code"),
    [
        ("lookup", {"topic": "no" * 500, "wait": -1}, "no-topic"),
        ("lookup", {"topic": "t", "wait": 1 << 63}, "bad-request"),
        ("topic-frontier", {"after": END - 1, "wait": 0}, ""),
        ("topic-frontier", {"after": END, "wait": 0}, "bad-request"),
        ("topic-frontier", {"after": -1, "wait": -1}, ""),
        ("topic-frontier", {"after": -2, "wait": -1}, "bad-request"),
        ("topic-epochs", {"after": 0, "upto": END - 1}, "epoch-ahead"),
        ("topic-epochs", {"after": -1, "upto": 0}, "epoch-gone"),
        ("topic-epochs", {"after": 0, "upto": 1, "at": (0, 1 << 70)}, "bad-request"),
        ("topic-epochs", {"after": 0, "upto": 1, "at": (1 << 70, 1)}, "bad-request"),
        ("topic-number", {"time": END}, "bad-request"),
        ("topic-number", {"time": END - 1}, ""),
        ("topic-acknowledge", {"reader": "r", "number": END - 1}, "epoch-ahead"),
        ("topic-acknowledge", {"reader": "r", "number": END}, "bad-request"),
    ],
    ids=lambda each: f"{each!r:.40}",
)
async def test_numbers_beyond_all_bounds_are_refused_or_mean_nothing(
    url: str, verb: str, options: dict[str, Value], code: str
) -> None:
    async with greeted(url) as peer:
        made = await value(peer, "join", {"topic": "t", "durable": True})
        await steps(peer, made["producer"], (forms.FINISH, 0, EMPTY, ((0, -1), (1, 1))))
        known = {} if verb in ("lookup", "topic-frontier") else {"id": made["id"]}
        answer = await ask(peer, verb, {"topic": "t", **known, **options})
        assert isinstance(answer, p.Denied if code else p.Answer), answer
        assert not isinstance(answer, p.Denied) or answer.code == code, answer


async def test_after_the_last_time_there_is_none(url: str) -> None:
    async with greeted(url) as peer:
        shape: dict[str, Value] = {"topic": "t", "partitions": 2}
        await value(peer, "join", shape)
        other = await value(peer, "join", {**shape, "partition": 1, "time": END - 1})
        await steps(peer, other["producer"], (forms.SEND, END - 1, EMPTY), (forms.LEAVE,))
        again = await ask(peer, "join", {**shape, "partition": 1})
        refused(again, "bad-request", "an integer from 0 to 2^63-1")


async def join_all(peer: Peer, begin: int) -> None:
    """Joins as many topics as one connection may, some at a time: a connection that is silent is closed."""
    for part in range(begin, begin + MAX_PRODUCERS, 256):
        topics = [Map({"topic": f"{each}"}) for each in range(part, part + 256)]
        await peer.say(*[p.Request(next(numbers), "join", each) for each in topics])
        for _ in topics:
            assert isinstance(await peer.hear(), p.Answer)


@pytest.mark.slow
@pytest.mark.parametrize("quotas", [Quotas(topics=MAX_TOPICS + 1)])
async def test_one_producer_and_one_topic_more_than_there_may_be(url: str) -> None:
    async with greeted(url) as first, trio.open_nursery() as nursery:
        await join_all(first, 0)
        beyond = await ask(first, "join", {"topic": "beyond"})
        refused(beyond, "limit", "producers of one connection", f"limit {MAX_PRODUCERS}")

        async def fill(begin: int, *, task_status: trio.TaskStatus[None]) -> None:
            async with greeted(url) as peer:
                await join_all(peer, begin)
                task_status.started()
                await full.wait()

        full = trio.Event()
        for begin in range(MAX_PRODUCERS, MAX_TOPICS, MAX_PRODUCERS):
            await nursery.start(fill, begin)
        async with greeted(url) as last:
            for durable in (False, True):
                beyond = await ask(last, "join", {"topic": "beyond", "durable": durable})
                refused(beyond, "limit", f"limit {MAX_TOPICS}")
            await value(last, "join", {"topic": "7"})
        full.set()


@pytest.mark.slow
async def test_one_named_reader_more_than_a_topic_may_have(url: str) -> None:
    async with greeted(url) as peer:
        made = await value(peer, "join", {"topic": "t", "durable": True})
        asked: dict[str, Value] = {"topic": "t", "id": made["id"], "number": 0}
        for each in range(MAX_READERS):
            answer = await ask(peer, "topic-acknowledge", {**asked, "reader": f"r{each}"})
            assert isinstance(answer, p.Answer), answer
        beyond = await ask(peer, "topic-acknowledge", {**asked, "reader": "beyond"})
        refused(beyond, "limit", f"limit {MAX_READERS}")
        assert isinstance(await ask(peer, "topic-acknowledge", {**asked, "reader": "r7"}), p.Answer)
