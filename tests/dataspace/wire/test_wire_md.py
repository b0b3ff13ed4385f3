"""WIRE.md tells the truth: its tables are the code's, and the recorded session beside it can be replayed.

``REWRITE=1`` writes the recorded session anew; read it before you commit it.
"""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
import index
import relay
import server
from dataspace.codec import pack, unpack
from dataspace.errors import Refused
from dataspace.kernel.actions import ASSERT, REPLACE, RETRACT, SEND
from dataspace.wire import packets as p
from dataspace.wire.consuming import LONGEST_SECONDS
from dataspace.wire.features import WANTED
from dataspace.wire.observing import OPTIONS
from dataspace.wire.session import Role, Session, encode
from dataspace.wire.verbs import VERBS, Subject
from index.patterns.patterns import capture, matcher
from index.values.values import Map, Record, Value, order_key, same
from server.config.model import Config
from server.daemon.serve import serve
from server.topics.durable import MAX_AWAY

PAGE = Path(dataspace.__file__).with_name("WIRE.md")
CODE = "\n\n".join(
    path.read_text()
    for layer in (index, dataspace, relay, server)
    for path in sorted(Path(layer.__path__[0]).rglob("*.py"))
)

ALICE, BEN = Record("present", "Alice"), Record("present", "Ben")
PRESENT = Record("present", capture("who"))
SPOKEN_OF: Final = {
    "stage",
    "rows",
    "ack_within",
    "attempts",
    "window",
    "backoff",
    "most_out",
    "rate",
    "exclusive",
    "names",
    "postponed",
    "next_due",
    "send",
    "retract",
    "assert",
}
"""Words beside the arguments of verbs: other verbs, operations, and options of groups."""

STEPS: list[tuple[list[p.Packet], int]] = [
    ([p.Hello(p.VERSION, "c0ffee", "example", Map({"heartbeat": 60_000}))], 1),
    ([p.Open(1, Map({"kind": "observe", "pattern": PRESENT}), 256, 65_536)], 1),
    ([p.Turn(1, "main", "", ((ASSERT, 1, ALICE), (SEND, Record("say", "Alice", "hi"))))], 2),
    ([p.Turn(2, "main", "", ((RETRACT, 7),))], 1),
    ([p.Turn(3, "main", "", ((REPLACE, 1, 2, BEN),))], 2),
    ([p.Turn(2, "main", "", ((RETRACT, 7),))], 1),
    ([p.Turn(1, "main", "", ((ASSERT, 1, ALICE), (SEND, Record("say", "Alice", "hi"))))], 1),
    ([p.Ask(1, 512, 131_072), p.Request(1, "frontier", Map({"after": 0}))], 1),
    ([p.Peek(1, 3)], 1),
    ([p.Open(2, Map({"pattern": PRESENT, "snapshot": False, "quiet": True}), 256, 65_536)], 1),
    ([p.Open(3, Map({"pattern": PRESENT, "after": 0, "upto": 3, "quiet": True}), 256, 65_536)], 2),
    ([p.Abort(1, "", True)], 1),
    ([p.Offer(4, Map({"kind": "stage", "key": ("nightly", "0")}))], 1),
    ([p.Values(4, 0, (("assert", ALICE), ("send", Record("say", "Alice", "hi"))), 0), p.Done(4)], 1),
    ([p.Request(2, "discard", Map({"key": ("nightly",)}))], 1),
    ([p.Request(3, "no-such-verb", Map())], 1),
    ([p.Ping(7)], 1),
    ([p.Bye("", "")], 1),
]
"""What the client says, and how many packets of the daemon answer that."""

Recorded = list[tuple[str, str, bytes]]
"""Of each packet: who sends it, its name, its frame."""

RECORDED = PAGE.parent / "wire" / "recorded-session.txt"
EXCERPT = re.compile(r"<!-- excerpt -->\n\n```text\n(.*?)```\n\n<!-- /excerpt -->", re.DOTALL)


async def _play(directory: Path, said: list[tuple[list[bytes], int]]) -> Recorded:
    """What a new daemon and a client say: each group of frames after the answers to the one before."""
    record: Recorded = []
    session = Session(Role.CLIENT)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=directory))
        async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:
            for frames, count in said:
                for each in frames:
                    record.append((">", type(p.read(unpack(each[4:]))).__name__, each))
                    await stream.send_all(each)
                heard: list[p.Packet] = []
                with trio.fail_after(10):
                    while len(heard) < count:
                        chunk = await stream.receive_some()
                        assert chunk, f"the daemon hung up after {heard}"
                        heard += session.feed(bytes(chunk))
                assert len(heard) == count, heard
                record += [("<", type(each).__name__, encode(each)) for each in heard]
        nursery.cancel_scope.cancel()
    return record


def _shown(record: Recorded) -> str:
    lines = []
    for side, name, data in record:
        text = data.hex(" ", 1)
        lines.append(f"{side} {name}")
        lines.extend(f"    {text[at : at + 96].strip()}" for at in range(0, len(text), 96))
    return "\n".join(lines) + "\n"


def _in_the_file() -> list[tuple[list[bytes], list[p.Packet]]]:
    """The recorded session, in groups: what the client sends, and the answers."""
    groups: list[tuple[list[bytes], list[p.Packet]]] = []
    for side, name, digits in re.findall(
        r"^([<>]) (\w+)\n((?:    [0-9a-f ]+\n)+)", RECORDED.read_text(), re.M
    ):
        data = bytes.fromhex(digits)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        packet = p.read(unpack(data[4:]))
        assert type(packet).__name__ == name
        if side == "<":
            groups[-1][1].append(packet)
        else:
            if not groups or groups[-1][1]:
                groups.append(([], []))
            groups[-1][0].append(data)
    return groups


def _lasting(packet: p.Packet) -> Value:
    """A packet without what differs from one daemon and moment to the next, as the page says."""
    match packet:
        case p.Welcome():
            packet = packet._replace(session=0, space="")
        case p.Values(stream, first, values, available) if stream < 4:
            timeless = tuple([(each[0], 0, *each[2:]) for each in values if isinstance(each, tuple)])
            packet = p.Values(stream, first, timeless, available)
        case p.Answer(number, Map() as told):
            packet = p.Answer(number, Map({**dict(told.pairs()), "space": ""}))
    return p.written(packet)


async def test_the_recorded_session_can_be_replayed(tmp_path: Path) -> None:
    """A client that sends the recorded bytes to a new daemon gets the recorded answers."""
    if os.environ.get("REWRITE"):
        told = [([encode(each) for each in packets], count) for packets, count in STEPS]
        block = _shown(await _play(tmp_path / "recorded", told))
        RECORDED.write_text(block)
        page, begin = PAGE.read_text(), block.index("> Turn")
        excerpt = block[begin : block.index(">", begin + 1)]
        (before,) = EXCERPT.findall(page)
        PAGE.write_text(page.replace(before, excerpt))
    assert "".join(EXCERPT.findall(PAGE.read_text())) in RECORDED.read_text()
    groups = _in_the_file()
    assert [frames for frames, _ in groups] == [[encode(each) for each in packets] for packets, _ in STEPS]
    record = await _play(tmp_path / "replayed", [(frames, len(answers)) for frames, answers in groups])
    heard = iter([p.read(unpack(data[4:])) for side, _, data in record if side == "<"])
    for frames, answers in groups:
        got = [next(heard) for _ in answers]
        said = f"after {[p.read(unpack(each[4:])) for each in frames]}"
        # those of one group may overtake one another
        assert sorted(map(repr, map(_lasting, got))) == sorted(map(repr, map(_lasting, answers))), said


def test_the_table_of_packets_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\w, ]+) \| (client|daemon|both) \|$", PAGE.read_text(), re.M)
    told = {int(number): (name, fields) for number, name, fields, _ in rows}
    assert told == {number: (kind.__name__, ", ".join(kind._fields)) for number, (kind, _) in p.TABLE.items()}


def _told_in(begin: str, end: str) -> set[str]:
    """The names in the first column of the tables of a part of the page, or in all columns after ``of``."""
    part = PAGE.read_text().split(begin)[1].split(end)[0]
    return set(re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\|(.*?)\|", part, re.M))))


async def test_limits_status_and_options_are_those_of_the_code(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path))
        async with dataspace.connect(url) as space:
            assert space.welcome is not None
            assert _told_in("`limits` a map, below.", "`Hello.features`") == set(
                map(str, space.welcome.limits)
            )
            part = PAGE.read_text().split("`status` answers with")[1].split("**Offer.**")[0]
            told = set(re.findall(r"`([a-z_]+)`", part.split("|---|---|")[1]))
            assert told - {"connections"} == set(map(str, await space.status())), (
                "it has its data in a directory"
            )
            with pytest.raises(Refused, match="no verb 'none'") as refused:
                await space._session.request("none", Map())
            known = set(refused.value.text.split("known are ")[1].split(", "))
        nursery.cancel_scope.cancel()
    assert _told_in("`spec` is a map:", "Where a default is not given") == set(OPTIONS)
    assert _told_in("| feature | in the hello", "**Tokens.**") - {"secret", "resumed", "follows"} == WANTED
    verbs = PAGE.read_text().split("| verb | arguments | answer |")[1].split("`status` answers with")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", verbs, re.M)) == known


def test_the_arguments_of_each_verb_are_those_of_the_table() -> None:
    """Each name stands there with its default, its words and its bound, and nothing else does."""
    part = PAGE.read_text().split("| verb | arguments | answer |")[1].split("`status` answers with")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*?) \| ", part, re.M))
    assert rows.keys() == VERBS.keys()
    for verb, cell in rows.items():
        arguments = VERBS[verb].arguments
        words = {word for each in arguments.values() for word in each.choices}
        named = set(re.findall(r"`([a-z][a-z_-]*)`", cell))
        assert arguments.keys() | words <= named and named <= arguments.keys() | words | SPOKEN_OF, verb
        for name, usual in re.findall(r"`([a-z_]+)` = (`?\w[\d ]*\w*)", cell):
            assert usual.strip("` ").replace(" ", "") == str(arguments[name].default).lower(), (verb, name)
        bounds = {str(each.most) for each in arguments.values()} | {f"{LONGEST_SECONDS:g}", str(MAX_AWAY)}
        for bound in re.findall(r"(?:up to|at most) (\d[\d ]*)", cell):
            assert bound.replace(" ", "") in bounds, (verb, bound)


def test_which_daemon_answers_is_as_the_table_says() -> None:
    part = PAGE.read_text().split("**Which daemon answers.**")[1].split("**Request, Answer")[0]
    about = {
        subject: {verb for verb, row in VERBS.items() if row.subject is subject}
        for subject in (Subject.DAEMON, Subject.STATE)
    }
    daemon, _, state = part.partition("where it has gone elsewhere")
    assert set(re.findall(r"`([a-z-]+)`", daemon)) == about[Subject.DAEMON]
    state = state.split(". ", 1)[1] if ". " in state else state
    assert set(re.findall(r"`([a-z-]+)`", state.split("are answered by any")[0])) == about[Subject.STATE]


def test_every_code_that_is_used_is_described() -> None:
    used = set(re.findall(r'(?:ProtocolError|Refused)\(\s*"([\w-]+)"', CODE))
    described = set(re.findall(r"`([a-z-]+)`", PAGE.read_text().split("## 4. Codes")[1].split("## 5.")[0]))
    assert used - described == set()


def test_a_pattern_travels_as_the_page_says() -> None:
    assert pack(Record("$", "who", None, Record("_"))) == pack(capture("who"))


LONGER: dict[str, Value] = {
    "cc01": 1,
    "d3ffffffffffffffff": -1,
    "ca3fc00000": 1.5,
    "d90161": "a",
    "c5000161": b"a",
    "dc000101": (1,),
    "de0001a16101": Map({"a": 1}),
    "c70401dc0001c0": Record(None),
    "82a16202a16101": Map({"a": 1, "b": 2}),
    "c7070394a16202a16101": Map({"a": 1, "b": 2}),
    "c70cff000003e80000000000000001": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
    "c70cff000003e70000000000000001": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("digits", LONGER)
def test_longer_forms_of_values_are_read_as_the_page_says(digits: str) -> None:
    assert same(unpack(bytes.fromhex(digits)), LONGER[digits])


def test_equality_and_order_are_as_the_page_says() -> None:
    other_nan = unpack(bytes.fromhex("cb7ff8000000000001"))
    assert same(other_nan, math.nan)
    assert not same(0.0, -0.0)
    rising: list[Value] = [
        *(None, False, True, math.nan, -(1 << 70), -1, -0.5, 0, -0.0, 0.0, 1, 1.0, 2, math.inf),
        *("", "a", "aa", "b", "\uffff", "\U00010000", b"", b"a", datetime(1970, 1, 1, tzinfo=UTC)),
        *((), (1,), (1, 1), (2,), Record("p"), Record("p", 1), Record("p", 1, 0), Record("q")),
        *(Map(), Map({"a": 1}), Map({"a": 1, "b": 0}), Map({"a": 2})),
    ]
    falling = rising[::-1]  # so that no two of one key pass for being in order
    assert list(map(repr, sorted(falling, key=order_key))) == list(map(repr, rising))
    packed = pack(Map([(at, None) for at in rising]))
    assert unpack(packed) == Map([(at, None) for at in falling])
    assert pack(Map([(at, None) for at in falling])) == packed


ANY: Final = Record("_")
MATCHING: list[tuple[Value, Value, tuple[Value, ...] | None]] = [
    (ANY, None, ()),
    (Record("p", ANY), Record("p"), None),
    (Record("_", "int"), 1, ()),
    (Record("_", "int"), True, None),
    (Record("_", "float"), 1, None),
    (Record("_", "null"), None, ()),
    (Record("$", "n", "int", ANY), 1, (1,)),
    (Record("$", None, None, Record("p", Record("$", None, None, ANY))), Record("p", 1), (Record("p", 1), 1)),
    (Record("lit", ANY), ANY, ()),
    (Record("lit", ANY), 1, None),
    (Record("p"), Record("p", 1, 2), ()),
    (Record("p", 1), Record("p", 1.0), None),
    (Record("exact", Record("p", 1)), Record("p", 1, 2), None),
    (Record("exact", (1, (2,))), (1, (2, 3)), ()),
    ((1,), (1, 2), ()),
    ((1,), Record(1, 1), None),
    (Map({"a": ANY}), Map({"a": 1, "b": 2}), ()),
    (Map({"a": ANY}), Map({"b": 2}), None),
    (
        Map({"b": Record("$", "b", None, ANY), "a": Record("$", "a", None, ANY)}),
        Map({"a": 1, "b": 2}),
        (1, 2),
    ),
    (Record("p", *[Record("$", "x", None, ANY)] * 2), Record("p", 1, 1), (1,)),
    (Record("p", *[Record("$", "x", None, ANY)] * 2), Record("p", 1, True), None),
    (-0.0, 0.0, None),
    (math.nan, math.nan, ()),
]


@pytest.mark.parametrize(("pattern", "value", "captures"), MATCHING, ids=repr)
def test_patterns_match_as_the_page_says(
    pattern: Value, value: Value, captures: tuple[Value, ...] | None
) -> None:
    assert matcher(pattern)(value) == captures
