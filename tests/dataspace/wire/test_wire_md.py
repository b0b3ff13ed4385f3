"""WIRE.md tells the truth: its table of packets is the code's, its recorded session decodes and encodes.

``REWRITE=1`` writes the recorded session anew; read it before you commit it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import dataspace
import index
import relay
import server
from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, RETRACT, SEND, SNAPSHOT
from dataspace.wire import packets as p
from dataspace.wire.session import Role, Session
from index.patterns.patterns import capture
from index.values.values import Map, Record

PAGE = Path(dataspace.__file__).with_name("WIRE.md")
CODE = "\n\n".join(
    path.read_text()
    for layer in (index, dataspace, relay, server)
    for path in sorted(Path(layer.__path__[0]).rglob("*.py"))
)

ALICE = Record("present", "Alice")
TIME = 1_767_225_600_000_000
SAID: list[tuple[str, p.Packet]] = [
    (">", p.Hello(p.VERSION, "c0ffee", "example", Map({"heartbeat": 60_000}))),
    (
        "<",
        p.Welcome(
            p.VERSION, 1, "9f86d081", 0, 0, Map({"frame_bytes": 4_194_304}), Map({"heartbeat": 15_000})
        ),
    ),
    (">", p.Open(1, Map({"kind": "observe", "pattern": Record("present", capture("who"))}), 256, 65_536)),
    ("<", p.Values(1, 0, ((0, 0, SNAPSHOT, (), (), (), 0),), 0)),
    (">", p.Turn(1, "main", "", ((ASSERT, 1, ALICE), (SEND, Record("say", "Alice", "hi"))))),
    ("<", p.Values(1, 1, ((2, TIME, 0, (("Alice",),), (), (), 2),), 0)),
    ("<", p.Accepted(1, (2,))),
    (">", p.Turn(2, "main", "", ((RETRACT, 7),))),
    ("<", p.Refusal(2, "unknown-handle", "handle 7 stands for nothing")),
    (">", p.Ask(1, 512, 131_072)),
    (">", p.Request(1, "frontier", Map({"after": 2, "wait": 1000}))),
    ("<", p.Answer(1, Map({"epoch": 3, "oldest": 1, "space": "9f86d081"}))),
    (">", p.Peek(1, 3)),
    ("<", p.Available(1, 3)),
    ("<", p.Reached(5, (1,))),
    (">", p.Abort(1, "", True)),
    ("<", p.Done(1)),
    (">", p.Offer(2, Map({"kind": "stage", "key": ("nightly", "0")}))),
    ("<", p.Ask(2, 4096, 262_144)),
    ("<", p.Peek(2, 1)),
    (">", p.Available(2, 1)),
    (">", p.Values(2, 0, (("assert", ALICE), ("send", Record("say", "Alice", "hi"))), 0)),
    (">", p.Done(2)),
    ("<", p.Done(2)),
    (">", p.Bye("", "")),
]


def _recorded() -> str:
    client, server = Session(Role.CLIENT), Session(Role.SERVER)
    lines = []
    for side, packet in SAID:
        speaker, hearer = (client, server) if side == ">" else (server, client)
        data = speaker.send(packet)
        assert list(hearer.feed(data)) == [packet]
        text = data.hex(" ", 1)
        rows = [text[at : at + 96] for at in range(0, len(text), 96)]
        lines.append(f"{side} {type(packet).__name__}")
        lines.extend(f"    {row.strip()}" for row in rows)
    return "\n".join(lines)


def test_the_recorded_session_is_what_the_code_says() -> None:
    page = PAGE.read_text()
    block = f"<!-- recorded -->\n\n```text\n{_recorded()}\n```\n\n<!-- /recorded -->"
    found = re.search(r"<!-- recorded -->.*?<!-- /recorded -->", page, re.DOTALL)
    assert found is not None
    if os.environ.get("REWRITE"):
        PAGE.write_text(page.replace(found[0], block))
    else:
        assert found[0] == block


def test_the_table_of_packets_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\w, ]+) \| (client|daemon|both) \|$", PAGE.read_text(), re.M)
    told = {int(number): (name, fields) for number, name, fields, _ in rows}
    assert told == {number: (kind.__name__, ", ".join(kind._fields)) for number, (kind, _) in p.TABLE.items()}


def test_every_code_that_is_used_is_described() -> None:
    used = set(re.findall(r'(?:ProtocolError|Refused)\(\s*"([\w-]+)"', CODE))
    described = set(re.findall(r"`([a-z-]+)`", PAGE.read_text().split("## 4. Codes")[1].split("## 5.")[0]))
    assert used - described == set()


def test_a_pattern_travels_as_the_page_says() -> None:
    assert pack(Record("$", "who", None, Record("_"))) == pack(capture("who"))
