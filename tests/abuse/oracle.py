"""The oracle: what each tenant may receive, and which answers a daemon may give.

Innocent tenants plant *marks*, texts that occur nowhere else, in facts, patterns, topics, staged
operations, rules and names.  Every byte that the daemon sends to a tenant is searched for marks; one that
the tenant may not see is a leak.  Every packet is decoded, and its code must be one that WIRE.md states for
its kind.

Always: a tenant that is not listed for a mark may not receive it, in whatever packet, whole or torn.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import dataspace
from dataspace.wire import packets as p

BEGIN: Final = "Zq7x"
"""How each mark begins; no tenant sends this but in a mark of its own."""

LONGEST: Final = 64
"""Bytes of a mark, at most."""

WIRE: Final = Path(dataspace.__file__).parent / "WIRE.md"

_ROW: Final = re.compile(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| ([A-Z][A-Za-z, ]*) \|", re.MULTILINE)
_MARK: Final = re.compile(rb"Zq7x-[a-z0-9_]+-[0-9]+;")


class Violation(AssertionError):
    """The daemon did something that it promises not to do."""


def codes() -> dict[str, frozenset[str]]:
    """Returns the codes of each packet that has one, as WIRE.md states them."""
    found: dict[str, set[str]] = {"Bye": set(), "Refusal": set(), "Error": set(), "Denied": set()}
    text = WIRE.read_text(encoding="utf-8")
    for names, kinds in _ROW.findall(text[text.index("## 4. Codes") :]):
        for kind in kinds.split(", "):
            found[kind] |= set(re.findall(r"[a-z-]+", names))
    return {kind: frozenset(names) for kind, names in found.items()}


class Oracle:
    """Marks, who may see each, and counts of what was received."""

    def __init__(self) -> None:
        self._seers: dict[bytes, frozenset[str]] = {}
        self._codes = codes()
        self.answers: Counter[str] = Counter()
        """How often each kind of packet came, with its code where it has one."""
        self.received = 0
        """Bytes that were searched."""

    def mark(self, what: str, *seers: str) -> str:
        """Returns a new mark that only these tenants may see."""
        made = f"{BEGIN}-{what}-{len(self._seers)};"
        assert len(made) <= LONGEST and _MARK.fullmatch(made.encode())
        self._seers[made.encode()] = frozenset(seers)
        return made

    def search(self, who: str, text: bytes) -> None:
        """Raises ``Violation`` if a text contains a mark that a tenant may not see."""
        self.received += len(text)
        if BEGIN.encode() not in text:
            return
        for found in _MARK.findall(text):
            if who not in self._seers.get(found, ()):
                at = text.index(found)
                raise Violation(
                    f"{who} received {found.decode()}, which only {sorted(self._seers.get(found, ()))} may"
                    f" see: …{text[max(0, at - 120) : at + 120]!r}…"
                )

    def judge(self, who: str, packet: p.Packet) -> None:
        """Counts a packet; raises ``Violation`` for a code that WIRE.md does not state for its kind."""
        kind = type(packet).__name__
        allowed = self._codes.get(kind)
        if allowed is None:
            self.answers[kind] += 1
            return
        code = packet.code  # type: ignore[union-attr]  # those kinds have one
        self.answers[f"{kind} {code}"] += 1
        if code == "internal" or not (code in allowed or (kind == "Bye" and not code)):
            raise Violation(f"{who} received {packet!r:.400}, whose code WIRE.md does not state for {kind}")
