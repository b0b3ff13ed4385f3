"""A live map is the state at a whole epoch: over cuts, differences and ends, and what its changes lead to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from dataspace.client.live import LiveMap
from dataspace.client.space import RemoteSpace
from dataspace.errors import Closed, Refused, SeveralRows, UsageError
from dataspace.kernel.actions import MORE, SNAPSHOT
from dataspace.loops.lone import alone
from dataspace.wire import packets as p
from index.values.values import Map, Value
from tests.dataspace.client.pipes import Daemon
from tests.dataspace.client.test_observations import connected

PATTERN = "temp($device, $celsius)"
Row = tuple[Value, ...]


def epoch(
    number: int,
    *added: Row,
    removed: tuple[Row, ...] = (),
    first: int | None = None,
    messages: tuple[Row, ...] = (),
    flags: int = 0,
) -> Value:
    return (number, 0, flags, added, messages, removed, number if first is None else first)


class Sender:
    """The daemon's side of one stream."""

    def __init__(self, daemon: Daemon, opened: p.Open) -> None:
        self.daemon = daemon
        self.opened = opened
        self.sent = 0

    async def say(self, *values: Value) -> None:
        """Sends values in one frame, and waits until they have been taken."""
        self.daemon.say(p.Values(self.opened.stream, self.sent, values, 0))
        self.sent += len(values)
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def living(
    *state: Row, pattern: str = PATTERN, by: Any = "device", **options: Any
) -> AsyncIterator[tuple[LiveMap[Any], Sender]]:
    """A live map of such a state, and what moves it."""
    daemon = Daemon()
    async with connected(daemon) as space:
        sender: list[Sender] = []

        async def begin() -> None:
            sender.append(Sender(daemon, await daemon.hear(p.Open)))
            await sender[0].say(epoch(1, *state, flags=SNAPSHOT))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin)
            async with space.live(pattern, by=by, **options) as temps:
                yield temps, sender[0]
                nursery.start_soon(_confirm, daemon)
            nursery.cancel_scope.cancel()


async def _confirm(daemon: Daemon) -> None:
    """Confirms the end of a stream."""
    aborted = await daemon.hear(p.Abort)
    daemon.say(p.Done(aborted.stream))


def seen(temps: Any) -> list[tuple[Value, Value]]:
    return [(key, row.celsius) for key, row in temps.items()]


def listed(changes: Any) -> list[tuple[Any, Any, Any]]:
    return [(key, old and old.celsius, new and new.celsius) for key, old, new in changes]


async def test_it_is_a_mapping_that_moves_by_itself() -> None:
    async with living(("d1", 20), ("d2", 21)) as (temps, daemon):
        assert seen(temps) == [("d1", 20), ("d2", 21)] and temps.epoch == 1
        assert repr(temps) == "<live temp($device, $celsius): 2 keys as of epoch 1>"
        before = temps.items()
        await daemon.say(
            epoch(2, ("d1", 22), removed=(("d1", 20),)), epoch(3, ("d0", 5)), epoch(4, messages=(("m", 1),))
        )
        assert seen(temps) == [("d1", 22), ("d2", 21), ("d0", 5)] and temps.epoch == 4
        assert [*temps] == ["d1", "d2", "d0"] and len(temps) == 3 and "d0" in temps and "m" not in temps
        assert temps["d1"] == ("d1", 22) and temps["d1"].celsius == 22 and temps.get("d9") is None
        assert [key for key, _ in before] == ["d1", "d2"], "what is iterated over is of one epoch"
        with pytest.raises(KeyError):
            temps["m"]


async def test_changes_are_the_net_difference_since_they_were_last_taken() -> None:
    async with living(("d1", 20), ("d2", 21)) as (temps, daemon):
        await daemon.say(epoch(2, ("d1", 22), removed=(("d1", 20),)), epoch(3, ("d3", 1)))
        await daemon.say(epoch(4, ("d1", 23), removed=(("d1", 22), ("d2", 21))))
        assert listed(await temps.changed()) == [("d1", 20, 23), ("d3", None, 1), ("d2", 21, None)]
        await daemon.say(
            epoch(5, ("d1", 1), removed=(("d1", 23),)), epoch(6, ("d1", 23), removed=(("d1", 1),))
        )
        await daemon.say(epoch(7, ("d9", 1)), epoch(8, removed=(("d9", 1),)))
        with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
            await temps.changed(timeout=0.01)
        await daemon.say(epoch(9, ("d4", 1)))
        assert listed(await temps.changed(timeout=0)) == [("d4", None, 1)]


async def test_a_loop_over_changes_loses_nothing_where_it_is_left() -> None:
    async with living(("d1", 20), ("d2", 21)) as (temps, daemon):
        both = (("d1", 20), ("d2", 21))
        await daemon.say(epoch(2, ("d1", 22), ("d2", 22), removed=both))
        async for change in temps:
            assert listed([change]) == [("d1", 20, 22)]
            break
        await daemon.say(epoch(3, ("d1", 23), ("d2", 23), removed=(("d1", 22), ("d2", 22))))
        with trio.move_on_after(0):
            await temps.changed()
        assert listed([await anext(temps)]) == [("d2", 21, 23)], "up to the state of now"
        assert listed(await temps.changed()) == [("d1", 22, 23)]


async def test_one_task_takes_changes() -> None:
    async with living() as (temps, daemon), trio.open_nursery() as nursery:
        taken: list[Any] = []

        async def take() -> None:
            taken.extend(listed(await temps.changed()))

        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="another task"):
            await temps.changed()
        with pytest.raises(UsageError, match="another task"):
            await anext(temps)
        await daemon.say(epoch(2, ("d1", 1)))
        assert taken == [("d1", None, 1)]


async def test_subscribers_are_called_after_each_epoch_with_rows_and_at_the_end() -> None:
    async with living(("d1", 20)) as (temps, daemon):
        calls: list[Any] = []
        end = temps.subscribe(lambda live: calls.append((live.epoch, seen(live))))
        temps.subscribe(lambda live: calls.append(live.error is None))
        await daemon.say(epoch(2, ("d2", 1)), epoch(3), epoch(4, removed=(("d1", 20),)))
        assert calls == [(2, [("d1", 20), ("d2", 1)]), True, (4, [("d2", 1)]), True]
        end()
        end()
        daemon.daemon.say(p.Done(daemon.opened.stream))
        await trio.testing.wait_all_tasks_blocked()
        assert calls[4:] == [False]


async def wrong(_temps: object) -> None:
    """A function that must be awaited."""


async def test_a_subscriber_that_fails_ends_the_map() -> None:
    def fail(live: LiveMap[Any]) -> None:
        raise ZeroDivisionError(live.epoch)

    async with living(("d1", 20)) as (temps, daemon):
        with pytest.raises(UsageError, match="asynchronous"):
            temps.subscribe(wrong)
        temps.subscribe(fail)
        await daemon.say(epoch(2, ("d1", 21), removed=(("d1", 20),)), epoch(3, ("d2", 1)))
        assert isinstance(temps.error, ZeroDivisionError) and seen(temps) == [("d1", 21)]
        assert listed(await temps.changed()) == [("d1", 20, 21)]
        with pytest.raises(ZeroDivisionError):
            await temps.changed()
        with pytest.raises(ZeroDivisionError):
            await anext(temps)


async def test_after_its_end_it_stays_readable_and_says_why() -> None:
    async with living(("d1", 20)) as (temps, daemon):
        await daemon.say(epoch(2, ("d2", 1)))
    assert seen(temps) == [("d1", 20), ("d2", 1)] and "closed" in str(temps.error)
    assert listed([change async for change in temps]) == [("d2", None, 1)]
    for _ in range(2):
        with pytest.raises(Closed, match="closed"):
            await temps.changed()
    with pytest.raises(Closed):
        await temps.at(3)
    await temps.at(2)


async def test_a_waiting_task_learns_of_the_end() -> None:
    async with living(("d1", 20)) as (temps, daemon), trio.open_nursery() as nursery:
        ends: list[str] = []

        async def wait() -> None:
            async for _ in temps:
                raise AssertionError("nothing has changed")
            ends.append("loop")

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        daemon.daemon.say(p.Done(daemon.opened.stream))
        await trio.testing.wait_all_tasks_blocked()
        assert ends == ["loop"] and "complete, as of epoch 1" in str(temps.error)


async def test_a_refusal_is_raised_where_the_block_begins_or_later_by_its_changes() -> None:
    daemon = Daemon()
    async with connected(daemon) as space, trio.open_nursery() as nursery:

        async def refuse() -> None:
            opened = await daemon.hear(p.Open)
            daemon.say(p.Error(opened.stream, "forbidden", "not you"))

        nursery.start_soon(refuse)
        with pytest.raises(Refused, match="not you"):
            async with space.live(PATTERN, by="device"):
                raise AssertionError("it has no state")
    async with living(("d1", 20)) as (temps, sender):
        sender.daemon.say(p.Error(sender.opened.stream, "forbidden", "no longer"))
        await trio.testing.wait_all_tasks_blocked()
        assert seen(temps) == [("d1", 20)]
        for wait in (temps.changed, temps.__anext__):
            with pytest.raises(Refused, match="no longer"):
                await wait()


# -- rows --------------------------------------------------------------------------------------------


@dataclass
class Reading:
    device: str
    celsius: float


class Pair(NamedTuple):
    device: str
    celsius: int


@pytest.mark.parametrize(
    ("row", "made"),
    [
        (Reading, Reading("d1", 20.0)),
        (Pair, Pair("d1", 20)),
        (lambda device, celsius: f"{device}={celsius}", "d1=20"),
    ],
)
async def test_rows_are_of_a_class_or_what_a_function_makes(row: Any, made: object) -> None:
    async with living(("d1", 20), row=row) as (temps, daemon):
        assert temps["d1"] == made and type(temps["d1"]) is type(made) and temps["d1"] is temps["d1"]
        await daemon.say(
            epoch(2, ("d1", 21), removed=(("d1", 20),)), epoch(3, ("d1", 20), removed=(("d1", 21),))
        )
        with pytest.raises(TimeoutError):
            await temps.changed(0)


async def test_a_row_that_does_not_fit_ends_the_map_before_its_epoch() -> None:
    async with living(("d1", 20), row=Pair) as (temps, daemon):
        await daemon.say(epoch(2, ("d0", 1), ("d1", "hot"), removed=(("d1", 20),)))
        assert [*temps.items()] == [("d1", ("d1", 20))] and temps.epoch == 1
        with pytest.raises(UsageError, match=r"'celsius' is \"hot\", and Pair.celsius takes int"):
            await temps.changed()


async def test_a_first_row_that_does_not_fit_is_raised_where_the_block_begins() -> None:
    with pytest.raises(ExceptionGroup) as raised:  # of the nurseries of this test
        async with living(("d1", "hot"), row=Pair):
            raise AssertionError("it has no state")
    assert "Pair.celsius takes int" in str(alone(raised.value))


async def test_names_that_are_none_of_pythons_are_a_tuple() -> None:
    async with living(("d1", 20), pattern="temp($device, $)") as (temps, _):
        assert temps["d1"] == ("d1", 20) and type(temps["d1"]) is tuple


async def test_keys_are_compared_as_values_and_several_are_a_tuple() -> None:
    async with living((1, 1), (1.0, 2), (True, 3)) as (temps, _):
        assert [temps[at].celsius for at in (1, 1.0, True)] == [1, 2, 3]
        assert repr([*temps]) == "[1, 1.0, True]" and [key for key, _ in temps.items()] == [1, 1.0, True]
    async with living(("d1", 20), ("d1", 21), by=("celsius", "device")) as (temps, _):
        assert [*temps] == [(20, "d1"), (21, "d1")] and temps[21, "d1"].celsius == 21


async def test_many_rows_of_a_key_are_a_list_and_sorted_keys_follow_them() -> None:
    async with living(("d1", 20), ("d2", 1), many=True, sort=len) as (temps, daemon):
        await daemon.say(epoch(2, ("d1", 21)))
        assert [[row.celsius for row in rows] for rows in temps.values()] == [[1], [20, 21]]
        (change,) = await temps.changed()
        old, new = list(change)[1:]
        assert [row.celsius for row in old] == [20] and len(new) == 2


async def test_without_many_several_are_refused_where_they_are_read() -> None:
    async with living(("d1", 20), ("d2", 1)) as (temps, daemon):
        await daemon.say(epoch(2, ("d1", 21), ("d2", 2), removed=(("d2", 1),)))
        assert temps["d2"].celsius == 2 and temps.error is None and [*temps] == ["d1", "d2"]
        for read in (lambda: temps["d1"], lambda: [*temps.values()]):
            with pytest.raises(SeveralRows, match="many=True"):
                read()
        changes = {change.key: change for change in await temps.changed()}
        assert changes["d2"].new == ("d2", 2) and changes["d1"].old == ("d1", 20)
        with pytest.raises(SeveralRows):
            _ = changes["d1"].new
        await daemon.say(epoch(3, removed=(("d1", 20),)))
        assert temps["d1"].celsius == 21


# -- connections -----------------------------------------------------------------------------------


async def again(daemon: Daemon, **welcome: Any) -> p.Open:
    daemon.cut()
    await daemon.greet(**welcome)
    return await daemon.hear(p.Open)


async def test_it_goes_on_where_it_was_by_the_net_difference() -> None:
    async with living(("d1", 20), ("d2", 21)) as (temps, sender):
        opened = await again(sender.daemon, epoch=9)
        assert (opened.spec["after"], opened.spec["net"]) == (1, True)
        await Sender(sender.daemon, opened).say(epoch(9, ("d1", 22), removed=(("d1", 20),), first=2))
        assert seen(temps) == [("d1", 22), ("d2", 21)] and temps.epoch == 9
        assert listed(await temps.changed()) == [("d1", 20, 22)]


@pytest.mark.parametrize("code", ["epoch-gone", "epoch-lost", "epoch-ahead"])
@pytest.mark.parametrize("options", [{}, {"durable": True}, {"as_of": 1, "follow": True}])
async def test_where_the_log_is_gone_the_difference_is_made_from_the_map(
    code: str, options: dict[str, Any]
) -> None:
    async with living(("d1", 20), ("d2", 21), ("d3", 1), **options) as (temps, sender):
        opened = await again(sender.daemon, epoch=90)
        sender.daemon.say(p.Error(opened.stream, code, "not there"))
        anew = await sender.daemon.hear(p.Open)
        assert not {"after", "as_of"} & {*anew.spec} and anew.spec.get("durable") is options.get("durable")
        await Sender(sender.daemon, anew).say(epoch(90, ("d4", 4), ("d3", 1), ("d1", 22), flags=SNAPSHOT))
        assert seen(temps) == [("d1", 22), ("d3", 1), ("d4", 4)], "what changed has kept its place"
        changes = listed(await temps.changed())
        assert sorted(changes) == [("d1", 20, 22), ("d2", 21, None), ("d4", None, 4)]


async def test_in_another_space_it_is_the_state_of_that() -> None:
    async with living(("d1", 20)) as (temps, sender):
        opened = await again(sender.daemon, epoch=3, space="another")
        assert "after" not in opened.spec
        await Sender(sender.daemon, opened).say(epoch(1, ("d2", 1), flags=SNAPSHOT))
        assert seen(temps) == [("d2", 1)]


async def test_a_state_in_parts_is_shown_when_it_is_whole() -> None:
    async with living() as (temps, daemon):
        await daemon.say(epoch(2, ("d1", 1), flags=MORE))
        assert len(temps) == 0 and temps.epoch == 1
        await daemon.say(epoch(2, ("d2", 1)))
        assert [*temps] == ["d1", "d2"] and temps.epoch == 2


async def test_nothing_is_held_and_credit_is_given_at_once() -> None:
    async with living() as (temps, sender):
        number = 1
        for _ in range(300):
            if (asked := sender.daemon.heard_nothing()) is False:
                assert isinstance(await sender.daemon.hear(p.Ask), p.Ask)
            many = [epoch(number := number + 1, (number, 1)) for _ in range(50)]
            await sender.say(*many)
            assert asked in (True, False) and len(temps) == number - 1


async def test_marks_move_the_epoch_and_it_is_asked_for_where_nothing_comes() -> None:
    async with living(("d1", 20)) as (temps, sender), trio.open_nursery() as nursery:
        daemon = sender.daemon
        daemon.say(p.Reached(7, (sender.opened.stream,)))
        await trio.testing.wait_all_tasks_blocked()
        assert temps.epoch == 7
        await temps.at(7)
        assert daemon.heard_nothing()
        nursery.start_soon(temps.at, 9)
        asked = await daemon.hear(p.Request)
        assert (asked.verb, asked.arguments["after"]) == ("frontier", 8)
        daemon.say(p.Answer(asked.number, Map({"epoch": 9})))
        asked = await daemon.hear(p.Request)
        assert (asked.verb, asked.arguments) == ("sync", Map({"reached": True}))
        daemon.say(p.Reached(9, (sender.opened.stream,)))
        daemon.say(p.Answer(asked.number, 9))
    assert temps.epoch == 9


async def test_waiting_for_an_epoch_ends_in_time() -> None:
    async with living(("d1", 20)) as (temps, sender):
        with pytest.raises(TimeoutError, match=r"epoch 9 has not come within 0\.01 s, the map is as of 1"):
            await temps.at(9, timeout=0.01)
        await sender.daemon.hear(p.Request)


# -- mistakes --------------------------------------------------------------------------------------


Call = Callable[[RemoteSpace], object]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s: s.live(PATTERN, by="what"), "by names captures, each once: device, celsius; not what"),
        (lambda s: s.live(PATTERN, by=[]), "not nothing"),
        (lambda s: s.live(PATTERN, by=["device", "device"]), "each once"),
        (lambda s: s.live("temp(_)", by="device"), "the pattern has none"),
        (lambda s: s.live(PATTERN, by="device", policy="wait"), "live has no policy"),
        (lambda s: s.live(PATTERN, by="device", window=3), "live has no window"),
        (lambda s: s.live(PATTERN, by="device", after=3), "live has no after"),
        (lambda s: s.live(PATTERN, by="device", follow=True), "as_of, which is not given"),
        (lambda s: s.live(PATTERN, by="device", row=7), "row is a class or a function, not 7"),
        (lambda s: s.live(PATTERN, by="device", sort="celsius"), "sort is a class or a function"),
        (lambda s: s.live("temp($device)", by="device", row=Pair), "Pair takes device, celsius"),
        (lambda s: s.live(PATTERN, by="device", row=wrong), "asynchronous"),
        (lambda s: s.live(PATTERN, by="device")["d1"], "not subscriptable"),
        (lambda s: s.live(PATTERN, by="device").get("d1"), r"write `async with space.live\("),
    ],
)
async def test_a_mistake_is_an_error_where_it_is_made(call: Call, text: str) -> None:
    async with connected(Daemon()) as space:
        with pytest.raises((UsageError, TypeError), match=text):
            call(space)
        with pytest.raises(TypeError, match="unexpected keyword argument 'polcy'"):
            space.live(PATTERN, by="device", polcy="wait")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({}, {}),
        ({"as_of": 7}, {"as_of": 7, "upto": 7}),
        ({"as_of": 7, "follow": True, "identity": "0" * 8}, {"as_of": 7, "identity": "0" * 8}),
        ({"quiet": True, "durable": True}, {"quiet": True, "durable": True}),
        ({"pace": 0.1}, {"pace": 100}),
    ],
)
async def test_options_are_those_of_an_observation(options: dict[str, Any], spec: dict[str, Any]) -> None:
    async with living(("d1", 20), **options) as (_, sender):
        given = {
            name: value
            for name, value in sender.opened.spec.items()
            if name not in ("kind", "pattern", "space")
        }
        assert given == spec
