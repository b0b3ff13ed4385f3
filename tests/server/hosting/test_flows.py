"""A daemon drives the flows that its configuration names, and what is wrong with one is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import UsageError
from dataspace.kernel.space import Space
from index.values.values import Map
from server.config.hosted import HostedFlow
from server.config.model import Config
from server.daemon.serve import serve
from server.hosting.loading import made_flow
from server.spaces.rules import HostedFlows

MODULE = "tests.server.hosting.flowing"


@asynccontextmanager
async def served(data: Path, *flows: HostedFlow) -> AsyncIterator[dataspace.RemoteSpace]:
    """A client of a daemon that hosts flows, until either ends."""
    await trio.Path(data).mkdir(exist_ok=True)
    config = Config(listen=("tcp:127.0.0.1:0",), data=data, flows=flows)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(serve, config)
        async with dataspace.connect(addresses[0], owner="durable:door") as space:
            yield space
        nursery.cancel_scope.cancel()


async def _next(space: dataspace.RemoteSpace, pattern: str) -> tuple[object, ...]:
    async with space.observe(pattern, quiet=True) as changes:
        async for change in changes:
            return change.captures
    raise AssertionError(pattern)


@pytest.mark.slow
async def test_what_a_flow_asserts_is_in_the_epoch_of_its_cause_and_stands_after_a_restart(
    tmp_path: Path,
) -> None:
    flow = HostedFlow(f"{MODULE}:crowds", "crowds", arguments=("guests",))
    with trio.fail_after(20):
        async with served(tmp_path / "data", flow) as space:
            await space.assert_(Record("present", "hall", "Alice"))
            assert await _next(space, "guests($room, $n)") == ("hall", 1)
        async with served(tmp_path / "data", flow) as space:
            assert await space.matches("guests($room, $n)") == [("hall", 1)]
            await space.assert_(Record("present", "hall", "Bob"))
            assert await space.matches("guests($room, $n)") == [("hall", 2)]
        async with served(tmp_path / "data") as space:
            assert await space.matches("guests($room, $n)") == [], "nobody derives it now"


@pytest.mark.slow
async def test_flows_are_drawn_beside_the_rules(tmp_path: Path) -> None:
    flows = [HostedFlow(f"{MODULE}:crowds", "crowds"), HostedFlow(f"{MODULE}:careless", "careless")]
    with trio.fail_after(20):
        async with served(tmp_path / "data", *flows) as space:
            alone = await space.request("rules", Map({"ask": "graph"}))
            await space.assert_(Record("rule", "alone", "alone($r) <- crowd($r, 1)."))
            beside = await space.request("rules", Map({"ask": "graph"}))
            await space.send(Record("divide", 0))
            left = await space.request("rules", Map({"ask": "graph"}))
    assert isinstance(alone, str) and isinstance(beside, str) and isinstance(left, str)
    boxes = [line.split('"')[1] for line in beside.splitlines() if "subgraph" in line]
    assert boxes == [
        "stratum 0",
        "flow crowds, stratum 0",
        "flow crowds, stratum 1",
        "flow careless, stratum 0",
    ]
    assert 'subgraph s0["flow crowds, stratum 0"]' in alone and "--x" in alone
    assert 'p1h0(["handoff"])' in beside and "linkStyle" in beside
    assert "careless" not in left, "a flow that has failed runs no more"


@pytest.mark.slow
async def test_a_flow_with_a_clock_is_pumped(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with served(tmp_path / "data", HostedFlow(f"{MODULE}:ticking")) as space:
            first = await _next(space, "beat($n:int)")
            assert await _next(space, "beat($n:int)") != first


@pytest.mark.slow
async def test_windows_of_a_flow_end_when_nothing_comes(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with (
            served(tmp_path / "data", HostedFlow(f"{MODULE}:recent")) as space,
            space.observe("recent($n)", quiet=True) as changes,
        ):
            for what in ("hello", "bye"):
                await space.send(Record("say", "Ann", what))
            counts: list[object] = []
            async for change in changes:
                counts += change.captures if change.kind == "+" else ()
                if len(counts) > 1 and counts[-1] == 0:
                    break
            assert max(map(int, map(str, counts))) in (1, 2)
            assert await _next(space, "ended($who, $what)") == ("Ann", ("hello", "bye"))


@pytest.mark.slow
async def test_a_function_that_raises_ends_its_flow_and_nothing_else(tmp_path: Path) -> None:
    flows = HostedFlow(f"{MODULE}:careless", "careless"), HostedFlow(f"{MODULE}:crowds", "crowds")
    with trio.fail_after(20):
        async with served(tmp_path / "data", *flows) as space:
            await space.send(Record("divide", 0))
            assert await _next(space, "flow-error($name, $reason)") == (
                "careless",
                "ZeroDivisionError: division by zero (in the stage map-2 of a flow)",
            )
            await space.assert_(Record("present", "hall", "Alice"))
            assert await space.matches("crowd($room, $n)") == [("hall", 1)]


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("nothing", f"flow {MODULE}:nothing: module {MODULE} has no function 'nothing'"),
        ("no_flow", f"flow {MODULE}:no_flow: {MODULE}:no_flow made 'nothing', and not a Flow"),
        ("unmade", f"flow {MODULE}:unmade: LookupError: no such room"),
    ],
)
def test_what_is_no_flow_is_refused_by_name(function: str, complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        made_flow(HostedFlow(f"{MODULE}:{function}"))
    assert str(refused.value) == complaint


def test_a_flow_that_has_no_strata_is_refused_with_its_cycle() -> None:
    flows = HostedFlows({f"{MODULE}:looped": made_flow(HostedFlow(f"{MODULE}:looped"))})
    with pytest.raises(UsageError, match=f"flow {MODULE}:looped: .*rest"):
        flows.attach(Space("main"))


@pytest.mark.slow
async def test_windows_see_no_messages_of_rules_and_flows_after_a_restart_either(tmp_path: Path) -> None:
    flow = HostedFlow(f"{MODULE}:echoing", "echoing")
    text = 'counted($x, count()) <- heard($x) within 1 h. send(heard("a")) <- raw(_).'
    with trio.fail_after(20):
        async with served(tmp_path / "data", flow) as space:
            await space.assert_(Record("rule", "r", text))
            await space.assert_(Record("raw", 1))
            await space.send(Record("said", "a"))
            await space.send(Record("heard", "a"))
            async with space.observe("counted($x, $n)", quiet=True) as changes:
                async for change in changes:
                    if change.kind == "+":
                        assert change.captures == ("a", 1)
                        break
            await space.send(Record("heard", "b"))
        async with served(tmp_path / "data", flow) as space:
            found = await space.matches("counted($x, $n)")
            assert sorted(found) == [("a", 1), ("b", 1)]
