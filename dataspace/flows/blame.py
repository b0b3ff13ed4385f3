"""Blame: in which stage of a flow did a function raise?

Operators call each other without anything in between, so an exception passes through all stages upstream of
the failed stage.  Nothing is paid for while nothing is raised: the frames that it passed are compared with
the receivers that the flow was wired from.

Always: the innermost stage is named; where two stages are of the same functions, both are.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import FrameType, TracebackType
from typing import Any

from dataspace.flows.operators import Operator


class Blame:
    """What the frames of each stage look like."""

    def __init__(self) -> None:
        self._receivers: dict[Hashable, dict[str, None]] = {}
        self._operators: dict[int, str] = {}

    def know(self, name: str, operator: Operator, receiver: Any = None) -> None:
        """Notes a stage, and a function that takes its items."""
        self._operators[id(operator)] = name
        if receiver is operator.emit:  # it passes items on: what raises there is further down
            return
        code = getattr(receiver, "__code__", None)
        if code is not None:
            cells = [cell.cell_contents for cell in receiver.__closure__ or ()]
            place = (code, tuple(map(id, cells)))
            self._receivers.setdefault(place, {})[name] = None

    def stage(self, error: BaseException) -> str:
        """Returns the name of the stage in which an exception was raised; empty where it was in none."""
        found = ""
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            found = self._named(trace.tb_frame) or found
            trace = trace.tb_next
        return found

    def _named(self, frame: FrameType) -> str:
        code, known = frame.f_code, frame.f_locals
        names = self._receivers.get((code, tuple([id(known.get(name)) for name in code.co_freevars])))
        if names is not None:
            return " or ".join(names)
        return self._operators.get(id(known.get("self")), "")
