"""What a request about n things costs n, for each verb that is about several; and so do turns and sessions.

A daemon and its client are in this process, on a real socket and a real disk.  Steps of the product's files
count, on both sides; they are not quite the same each time, as passes of the loop are not.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import trio

import dataspace
from dataspace import Record, RemoteSpace, absent, exactly
from dataspace.kernel.limits import SpaceLimits
from dataspace.wire.verbs import VERBS, Subject
from index.patterns.text import parse_pattern
from index.values.values import Map, Value
from server.config.model import Config, Limits
from server.config.principals import Quotas
from server.daemon.serve import serve
from tests.costs.counting import Cost, Known, counting, judge

N: Final = 40
SLACK: Final = 2_000
"""Steps that differ from run to run."""

TOP: Final = Path(dataspace.__file__ or "").parent.parent
PRODUCT: Final = tuple([f"{TOP}/{name}/" for name in ("index", "dataspace", "relay", "server")])

Case: TypeAlias = Callable[[RemoteSpace, int], Awaitable[object]]


def _fact(number: int) -> Record:
    return Record("m", number, number % 7)


ASKED: Final[frozenset[str]] = frozenset(re.findall(r'ask\(space, "([a-z-]+)"', Path(__file__).read_text()))


async def ask(space: RemoteSpace, verb: str, **arguments: Value) -> Any:
    return await space.request(verb, Map(arguments))


async def hold(space: RemoteSpace, count: int) -> None:
    """Asserts n facts in one turn."""
    draft = space.draft()
    for number in range(count):
        draft.assert_(_fact(number))
    await space.commit(draft)


# -- what is done before, and then what is measured -----------------------------------------------------


async def nothing(space: RemoteSpace, count: int) -> None:
    await space.sync()


async def turns(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await space.assert_(_fact(number))


async def expect_facts(space: RemoteSpace, count: int) -> None:
    expect = [exactly(f"m({number}, $x)", [(number % 7,)]) for number in range(count)]
    async with space.turn(expect=expect) as turn:
        turn.send(Record("said"))


async def expect_none(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        async with space.turn(expect=[absent(f"m(-1, {number})")]) as turn:
            turn.send(Record("said"))


async def leases(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "lease", owner=f"lease:60000:{number}")


async def renew(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "renew", owner=f"lease:60000:{number}")


async def release(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "release", owner=f"lease:60000:{number}")


async def put(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await space.put("p", number, 0, owner="w")


async def withdraw(space: RemoteSpace, count: int) -> None:
    await ask(space, "withdraw", owner="w", pattern=parse_pattern("p(_, _)"))


async def withdraw_each(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "withdraw", owner="w", pattern=parse_pattern(f"p({number}, _)"))


async def owners(space: RemoteSpace, count: int) -> None:
    await ask(space, "owners", pattern=parse_pattern("m(_, _)"))


async def who(space: RemoteSpace, count: int) -> None:
    await space.sync()
    await ask(space, "who", pattern=parse_pattern("m(_, _)"))


async def matches(space: RemoteSpace, count: int) -> None:
    assert len(await space.matches("m($a, $b)")) == count


async def stage(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "stage", key=(f"k{number}",), operations=(("assert", _fact(number)),))


async def stage_once(space: RemoteSpace, count: int) -> None:
    await ask(space, "stage", key=("k",), operations=tuple([("assert", _fact(at)) for at in range(count)]))


async def publish(space: RemoteSpace, count: int) -> None:
    keys = tuple([(f"k{number}",) for number in range(count)])
    await ask(space, "publish", keys=keys, owner="w", client="c", sequence=1)


async def publish_once(space: RemoteSpace, count: int) -> None:
    await ask(space, "publish", keys=(("k",),), owner="w", client="c", sequence=1)


async def discard(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "discard", key=(f"k{number}",))


async def send(space: RemoteSpace, count: int) -> None:
    await ask(space, "take", group="g", pattern=parse_pattern("m($n, _)"))
    draft = space.draft()
    for number in range(count):
        draft.send(_fact(number))
    await space.commit(draft)


async def take(space: RemoteSpace, count: int) -> None:
    assert len((await ask(space, "take", group="g", most=count, wait=5_000))["jobs"]) == count


async def take_each(space: RemoteSpace, count: int) -> None:
    for _ in range(count):
        assert len((await ask(space, "take", group="g", wait=5_000))["jobs"]) == 1


async def groups(space: RemoteSpace, count: int) -> None:
    await ask(space, "groups", out=True)


async def peek(space: RemoteSpace, count: int) -> None:
    assert len((await ask(space, "peek", group="g", most=count))["jobs"]) == count


async def many_groups(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "take", group=f"g{number}", pattern=parse_pattern(f"m({number}, $n)"))


async def rules(space: RemoteSpace, count: int) -> None:
    draft = space.draft()
    for number in range(count):
        draft.assert_(Record("rule", f"r{number}", f"a{number}($x) <- m($x, {number})."))
    await space.commit(draft)


async def explain(space: RemoteSpace, count: int) -> None:
    await ask(space, "rules", ask="explain")


async def readers(space: RemoteSpace, count: int) -> None:
    for number in range(count):
        await ask(space, "acknowledge", reader=f"r{number}", epoch=0)


async def observers(space: RemoteSpace, count: int) -> None:
    async with AsyncExitStack() as held:
        for number in range(count):
            await held.enter_async_context(space.observe(f"m({number}, $x)"))
        await hold(space, count)


CASES: Final[dict[str, tuple[Case, ...]]] = {
    "facts in one turn": (hold,),
    "facts in n turns": (turns,),
    "expectations of a turn": (hold, expect_facts),
    "turns with expectations": (hold, expect_none),
    "lease renew release": (leases, renew, release),
    "withdraw of n": (put, withdraw),
    "withdraw of each": (put, withdraw_each),
    "owners who": (hold, owners, who, matches),
    "stage publish of n batches": (stage, publish),
    "stage publish of one batch": (stage_once, publish_once),
    "discard": (stage, discard),
    "take groups peek": (send, take, groups, peek),
    "peek": (send, peek),
    "take one by one": (send, take_each),
    "take of n groups": (many_groups, groups),
    "rules": (rules, explain),
    "acknowledge": (readers,),
    "observers": (observers,),
}
"""What is done one after the other; each part is measured by itself."""

KNOWN: Final = {
    "turns with expectations": [
        Known("expect_none", "a pattern that is not observed is compared with all facts of its label")
    ],
    "withdraw of each": [Known("withdraw_each", "each looks at all claims of the owner")],
}

SLACKS: Final = {"take of n groups": 40_000}
"""Where more is not judged: whenever a group begins, the reader looks at all of them."""

TOPICS: Final = "topics have no laws yet"
PART: Final = "the answer is a part of bounded size"
ALONE: Final = "it is about one thing"
OTHERS: Final = {
    "sync": ALONE,
    "status": PART,
    "index": PART,
    "actors": PART,
    "sessions": PART,
    "end-session": "the end of a session is measured in each case",
    "drain": ALONE,
    "cluster": ALONE,
    "frontier": ALONE,
    "within": "it reads the log, which has laws of its own",
    "erase": "the archive does it, in a process of its own",
    "follow": ALONE,
    "prepare": "it looks at rows as publish does",
    "settle": "groups have laws of their own",
    "group-alter": "groups have laws of their own",
    **{verb: TOPICS for verb, each in VERBS.items() if each.subject is Subject.TOPICS},
}
"""Verbs without a law, and why."""


async def _measured(path: Path, case: str, count: int) -> dict[str, Cost]:
    plenty = 1 << 30
    config = Config(
        ("tcp:127.0.0.1:0",),
        path / str(count),
        limits=replace(Limits(), heartbeat_seconds=3600.0),
        space_limits=replace(SpaceLimits(), rules=plenty),
        quotas=Quotas(),
    )
    costs: dict[str, Cost] = {}
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, config)
        async with dataspace.connect(url) as other, AsyncExitStack() as held:
            space = await held.enter_async_context(dataspace.connect(url))
            await space.sync()
            for each in CASES[case]:
                with counting(within=PRODUCT) as found:
                    await each(space, count)
                costs[each.__name__] = found[0]
            with counting(within=PRODUCT) as found:
                await held.aclose()
                await other.sync()
            costs["the session ends"] = found[0]
        nursery.cancel_scope.cancel()
    return costs


def _run(path: Path, case: str, count: int) -> dict[str, Cost]:
    return trio.run(_measured, path, case, count)


def test_each_verb_has_a_law_or_a_reason() -> None:
    assert ASKED | OTHERS.keys() == VERBS.keys()
    assert not ASKED & OTHERS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_request_costs_as_much_as_it_is_about(tmp_path: Path, case: str) -> None:
    judge(partial(_run, tmp_path, case), N, KNOWN.get(case, ()), SLACKS.get(case, SLACK))
