"""A daemon's facts as rows of a class of the application."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import trio

import dataspace
from dataspace import Record, UsageError


class Reading(NamedTuple):
    device: str
    value: float


async def test_a_space_gives_rows_of_a_class(url: str) -> None:
    async with dataspace.connect(url) as space:
        for device, value in [("a", 1.5), ("b", 2)]:
            await space.assert_(Record("reading", device, value))
        assert await space.matches("reading($device, $value)", row=Reading) == [
            Reading("a", 1.5),
            Reading("b", 2.0),
        ]
        rows = await space.query("reading($device, $value), $value > 1.9", row=Reading)
        assert (
            list(rows) == [Reading("b", 2.0)]
            and rows.epoch == 2
            and rows.untyped.names == ("device", "value")
        )
        with pytest.raises(UsageError, match="name a capture"):
            await space.matches("reading($device, _)", row=Reading)
        async with space.observe("reading($device, $value)", row=Reading) as readings:
            state = await readings.next_epoch()
            assert (
                state is not None and state.snapshot and state.added == [Reading("a", 1.5), Reading("b", 2.0)]
            )
            claim = await space.assert_(Record("reading", "c", "warm"))
            with pytest.raises(UsageError, match=r"'value' is \"warm\", and Reading\.value takes"):
                await anext(readings)
            await space.replace(claim, Record("reading", "c", 3.5))
            change = await anext(readings)
            assert (change.kind, change.row, change.epoch) == ("+", Reading("c", 3.5), 5)


async def test_the_blocking_client_gives_them_as_well(url: str) -> None:
    def script() -> None:
        with dataspace.connect_blocking(url) as space:
            space.assert_(Record("reading", "a", 1))
            assert space.matches("reading($, $)", row=Reading) == [Reading("a", 1.0)]
            assert list(space.query("reading($device, $value)", row=Reading)) == [Reading("a", 1.0)]
            with space.observe("reading($device, $value)", row=Reading) as readings:
                assert next(iter(readings)).row.value == 1.0
                with pytest.raises(TimeoutError):
                    readings.next_epoch(timeout=0.01)
                space.assert_(Record("reading", "b", 2))
                added = next(readings.epochs()).added
                assert added == [Reading("b", 2.0)] and readings.untyped.names == Reading._fields
                seen: list[float] = []
                space.assert_(Record("reading", "c", 3))
                space.assert_(Record("reading", "c", "warm"))
                with pytest.raises(UsageError, match=r"Reading\.value takes float"):
                    readings.each(lambda change: seen.append(change.row.value))
                assert seen == [3.0]

    await trio.to_thread.run_sync(script)
