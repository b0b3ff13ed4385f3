"""What the statements about daemons by name, and about pauses, answer and change, as plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from relay.store.postgres import daemons

Row: TypeAlias = tuple[Any, ...]
Content: TypeAlias = Mapping[str, Mapping[Any, Row]]
Values: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = tuple[list[Any], list[tuple[str, Any, Row | None]]]

NEW: Final[Row] = ("", "", None, None, None)
"""A daemon by name: its address, its version, since when it is drained, when it left, what it says."""
NAME, URL, UNTIL = 1, 2, 7
"""Columns of a member."""


def is_drained(content: Content, name: str | None) -> bool:
    """True if an operator has drained a daemon."""
    return content["daemons"].get(name, NEW)[2] is not None


def _drain(content: Content, v: Values, now: float, _number: int) -> Answer:
    if is_drained(content, v["name"]):
        return [], []
    url, version, _, *rest = content["daemons"].get(v["name"], NEW)
    return [(v["name"],)], [("daemons", v["name"], (url, version, now, *rest))]


def _resume(content: Content, v: Values, _now: float, _number: int) -> Answer:
    if not is_drained(content, v["name"]):
        return [], []
    url, version, _, *rest = content["daemons"][v["name"]]
    return [(v["name"],)], [("daemons", v["name"], (url, version, None, *rest))]


def _say(content: Content, v: Values, _now: float, _number: int) -> Answer:
    drained = content["daemons"].get(v["name"], NEW)[2]
    return [], [("daemons", v["name"], (v["url"], v["version"], drained, None, v["said"]))]


def _left(content: Content, v: Values, now: float, _number: int) -> Answer:
    drained = content["daemons"].get(v["name"], NEW)[2]
    return [], [("daemons", v["name"], (v["url"], v["version"], drained, now, None))]


def _forget(content: Content, v: Values, now: float, _number: int) -> Answer:
    here = {row[NAME] for row in content["members"].values()}
    gone = [row[3] for row in content["daemons"].values() if row[3] is not None]
    return [], [
        ("daemons", name, None)
        for name, (_, _, drained, at, _) in content["daemons"].items()
        if drained is None
        and name not in here
        and (at is None or at < now - v["kept"] or sum([each > at for each in gone]) >= v["most"])
    ]


def _stopped(content: Content, v: Values, now: float, _number: int) -> Answer:
    before = content["handovers"].get(v["space"])
    if before is not None and before[0] >= v["term"]:
        return [], []
    return [], [("handovers", v["space"], (v["term"], now - v["ago"], None))]


def _served(content: Content, v: Values, now: float, _number: int) -> Answer:
    term, stopped, served = content["handovers"].get(v["space"], (None, None, None))
    if term != v["term"] - 1 or served is not None:
        return [], []
    return [], [("handovers", v["space"], (term, stopped, now))]


def noted(content: Content) -> tuple[list[Row], list[Row]]:
    """Returns what the columns of a ``StoreNoted`` answer."""
    rows: list[Row] = [(name, *row) for name, row in sorted(content["daemons"].items())]
    pauses: list[Row] = [
        (content["spaces"][space][0], term, None if served is None else served - stopped)
        for space, (term, stopped, served) in content["handovers"].items()
    ]
    return rows, sorted(pauses)


REMEMBERED: Final[Mapping[str, Callable[[Content, Values, float, int], Answer]]] = {
    daemons._DRAIN: _drain,
    daemons._RESUME: _resume,
    daemons._SAY: _say,
    daemons._LEFT: _left,
    daemons._FORGET: _forget,
    daemons._STOPPED: _stopped,
    daemons._SERVED: _served,
}
