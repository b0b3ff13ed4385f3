"""A real daemon in a process of its own, for tests that read from it and write to it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from dataspace.client.bulk.client import BulkClient
from examples.flights import processes
from index.patterns.text import parse, parse_pattern
from index.values.values import Value


class Daemon(processes.Daemon):
    """The demo's daemon, which comes back on its port after ``kill``, and what tests do with it."""

    def __init__(self, folder: Path, *more: str, port: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, *more, port=port)

    def turn(self, *operations: str, owner: str = "test") -> int:
        """One turn of ``+fact``, ``-fact`` and ``!message``, each as text; its epoch."""
        return self.turn_of([(VERBS[each[0]], parse(each[1:])) for each in operations], owner=owner)

    def turn_of(self, operations: Sequence[tuple[str, Value]], *, owner: str = "test") -> int:
        """One turn of operations by value; its epoch."""
        key = (uuid.uuid4().hex,)
        with BulkClient(self.url) as link:
            link.stage(key, operations)
            return link.publish([key], client=key[0], sequence=1, owner=owner)

    def facts(self, pattern: str) -> list[tuple[Value, ...]]:
        """The captures of all that matches now, in order."""
        with BulkClient(self.url) as link:
            epoch = link.frontier().epoch
            parts = link.changes(parse_pattern(pattern), as_of=epoch, upto=epoch) if epoch else ()
            return sorted((row for part in parts for row in part.added), key=repr)

    def changes(self, pattern: str) -> list[tuple[str, int, tuple[Value, ...]]]:
        """All that ever happened to what matches: kind, epoch, captures."""
        with BulkClient(self.url) as link:
            now = link.frontier()
            parts = link.changes(parse_pattern(pattern), after=now.oldest - 1, upto=now.epoch)
            return [
                (kind, part.number, row)
                for part in parts
                for kind, rows in (("+", part.added), ("!", part.messages), ("-", part.removed))
                for row in rows
            ]


VERBS = {"+": "assert", "-": "retract", "!": "send"}


def texts(facts: Iterable[str]) -> list[str]:
    """``+`` before each fact."""
    return [f"+{fact}" for fact in facts]
