"""What a log does with n epochs costs n: to write, read, recover and replay them, to keep and to drop them.

Epochs are of one fact or of several, of one owner or of n, in one write or in n.  The instructions of
SQLite's machine count as well.  The store in memory is not measured: it is of the tests, and sorts all rows.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND, Action
from dataspace.kernel.changes import Epoch
from index.patterns.patterns import DISCARD, capture
from index.values.values import Record, Value
from relay.log.log import Log
from relay.log.replay import Replay, state_at
from relay.log.retention import Retention
from tests.costs.counting import Cost, cost, judge
from tests.costs.kernel import Part
from tests.relay.log.histories import append, lived

N: Final = 24
_CONNECT: Final = sqlite3.connect
ANY: Final = capture()


def _fact(number: int) -> Value:
    return Record("m", number)


def _replacing(count: int) -> list[list[Action]]:
    turns: list[list[Action]] = [[(ASSERT, 0, _fact(0))]]
    for at in range(count):
        turns.append([(REPLACE, at, at + 1, _fact(at + 1))])
    return turns


TURNS: Final[dict[str, Callable[[int], list[Part]]]] = {
    "n facts": lambda n: [("durable:a", [(ASSERT, at, _fact(at))]) for at in range(n)],
    "a fact of n owners": lambda n: [(f"durable:{at}", [(ASSERT, 1, _fact(0))]) for at in range(n)],
    "facts of n owners": lambda n: [(f"durable:{at}", [(ASSERT, 1, _fact(at))]) for at in range(n)],
    "equal messages": lambda n: [("durable:a", [(SEND, _fact(0))]) for _ in range(n)],
    "a fact that is replaced": lambda n: [("durable:a", each) for each in _replacing(n)],
    "facts that come and go": lambda n: [
        ("durable:a", [action])
        for at in range(n)
        for action in (list[Action]([(ASSERT, at, _fact(0)), (RETRACT, at)]))
    ],
    "one turn of n facts": lambda n: [("durable:a", [(ASSERT, at, _fact(at)) for at in range(n)])],
}
"""Turns, which are an epoch each unless they change nothing."""


def _write(log: Log, epochs: Sequence[Epoch], *, at_once: bool) -> None:
    if at_once:
        append(log, *epochs)
    else:
        for each in epochs:
            append(log, each)


def _replay(log: Log, pattern: Value, last: int) -> None:
    for _ in Replay(log, pattern, 0).epochs(last):
        pass


def _acknowledge(log: Log, count: int) -> None:
    for at in range(count):
        log.acknowledge(f"r{at}", 0, 0)


def _snapshot(log: Log) -> None:
    state = log.recover()
    state.segment = log.last_segment
    writer = log.snapshot(state)
    while writer.step():
        pass


def _trim(log: Log) -> None:
    while log.trim(Retention(age=0.0), 10**12).more:
        pass


def _logged(path: Path, turns: str, at_once: bool, count: int) -> dict[str, Cost]:
    _, epochs, _ = lived(TURNS[turns](count), ())
    costs: dict[str, Cost] = {}
    log = Log.open(path)
    last = epochs[-1].number if epochs else 0

    def measure(name: str, work: Callable[[], object]) -> None:
        costs[name] = cost(work)

    measure("write", lambda: _write(log, epochs, at_once=at_once))
    measure("read", lambda: list(log.read(0)))
    measure("read the newest", lambda: list(log.read(max(0, last - 1))))
    measure("replay", lambda: _replay(log, ANY, last))
    measure("replay of a pattern", lambda: _replay(log, Record("m", DISCARD), last))
    measure("replay of nothing", lambda: _replay(log, Record("n", ANY), last))
    measure("the state in the middle", lambda: state_at(log, last // 2))
    measure("find turns", lambda: log.find_turns("a client", range(last)))
    measure("readers acknowledge", lambda: _acknowledge(log, count))
    log.close()
    log = Log.open(path)
    measure("recover", log.recover)
    measure("readers go", lambda: [log.forget(f"r{at}") for at in range(count)])
    measure("snapshot", lambda: _snapshot(log))
    measure("recover from a snapshot", lambda: log.recover(snapshot=True))
    measure("drop what is old", lambda: _trim(log))
    measure("read what is left", lambda: list(log.read(log.oldest - 1)))
    log.close()
    return costs


def _connect(*args: Any, **options: Any) -> sqlite3.Connection:
    """Opens a database, of whose machine each instruction calls a function of Python: three steps."""
    connection: sqlite3.Connection = _CONNECT(*args, **options)
    connection.set_progress_handler(_progress, 1)
    return connection


def _progress() -> int:
    return 0


def _run(turns: str, at_once: bool, count: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory() as path, patch.object(sqlite3, "connect", _connect):
        return _logged(Path(path), turns, at_once, count)


@pytest.mark.slow
@pytest.mark.parametrize("turns", TURNS)
def test_a_log_costs_as_many_epochs_as_it_has(turns: str) -> None:
    for at_once in (True, False):
        _run(turns, at_once, N)  # what is made once
        judge(partial(_run, turns, at_once), N)
