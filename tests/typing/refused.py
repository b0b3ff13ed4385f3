"""Uses that the types must refuse: mypy complains where a line marked here is accepted; run by nobody."""

from __future__ import annotations

from dataclasses import dataclass

import dataspace
from dataspace.actors.engine.records import record
from dataspace.actors.engine.turns import Turn
from index.values.values import Map, Record, Value, key
from server.config.declaring import setting
from server.config.kinds import SECONDS, path

a_list: Value = [1, 2]  # type: ignore[assignment]  # a list can change
a_dict: Value = {"k": 1}  # type: ignore[assignment]  # so can a dict
a_set: Value = frozenset([1])  # type: ignore[assignment]  # a set is no value
an_object: Value = object()  # type: ignore[assignment]  # nor is anything else

key([1])  # type: ignore[arg-type]  # only values have keys
smaller = Record("p") < Record("q")  # type: ignore[operator]  # values have no comparison operators of their own
Map([("k", 1)])["k"] = 2  # type: ignore[index]  # a map never changes
Record()  # type: ignore[call-arg]  # a record has a label


@dataclass
class Settings:
    text: str = setting(1.0, SECONDS)  # type: ignore[assignment]  # a setting is read as its field holds it
    number: int = setting(0, path)  # type: ignore[assignment]  # whatever its default


async def conversations() -> None:
    async with dataspace.connect(port=7377) as _:  # type: ignore[call-arg]  # an address is a URL
        pass
    async with dataspace.connect() as space:
        await space.retract("present")  # type: ignore[arg-type]  # a claim or its handle ends it
        space.observe("a($x)", row=5)  # type: ignore[call-overload]  # a row is a class
        await space.matches("a($x)", row=5)  # type: ignore[arg-type]  # for every verb
        space.observe("a($x)", polcy="wait")  # type: ignore[call-overload]  # options have names
        claim = space.assert_(1)
        print(claim.handle)  # type: ignore[attr-defined]  # it was not awaited
        with space.turn() as _:  # type: ignore[attr-defined]  # a turn ends on the disk, so it waits
            pass


def conversation(turn: Turn) -> None:
    @turn.on_message("present($who)")
    def heard(turn: Turn, who: str) -> None:
        pass

    heard(turn, 1)  # type: ignore[arg-type]  # a decorated handler has the types it was written with
    turn.on_message("present($who)")("no function")  # type: ignore[type-var]  # nothing could call that
    turn.field("count", 0).value = "one"  # type: ignore[assignment]  # a field keeps its type
    turn.stop("name")  # type: ignore[arg-type]  # a facet is not known by its name
    turn.after("1s")  # type: ignore[arg-type]  # seconds are a number
    turn.retract("present")  # type: ignore[arg-type]  # a claim is what claim gave
    record("present", 1)  # type: ignore[arg-type]  # fields have names
