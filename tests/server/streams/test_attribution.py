"""``who`` shows owner, client, principal and address of each past change, to those who may inspect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import product
from pathlib import Path

import pytest
import trio

from dataspace.codec import pack, unpack_own
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.kernel.changes import Claims, Epoch
from dataspace.wire import packets as p
from index.patterns.patterns import matcher
from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value, key
from relay.log import segments
from relay.log.notes import origin_of
from relay.log.segments import encode
from server.config.rights import Key, Rights
from server.owners import turn_numbers
from server.streams.verbs import changes_of
from tests.server.owners.test_foreign_names import APART, Guest, publication
from tests.server.streams.inside import Inside, inside

DOOR, ADMIN, BLIND = "the secret of a door", "the secret of the admin", "the secret of a reader"
ONE_FACT: dict[str, Value] = {"observe": ("on(_)",), "inspect": True, "assert": ("on(_)",)}
KEYS = (
    Key("door", DOOR),
    Key("admin", ADMIN),
    Key("blind", BLIND, Rights.read(Map({"observe": ("on(_)",), "inspect": False}))),
    Key("narrow", "the secret of a narrow one", Rights.read(Map(ONE_FACT))),
)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Inside]:
    with trio.fail_after(30):
        async with inside(tmp_path, keys=KEYS) as made:
            yield made


async def who(guest: Guest, pattern: str = "$", **more: Value) -> Map:
    await guest.wire.say(p.Request(77, "who", Map({"pattern": parse_pattern(pattern), **more})))
    heard = await guest.wire.hear()
    assert isinstance(heard, p.Answer), heard
    assert isinstance(heard.value, Map)
    return heard.value


async def changes(guest: Guest, pattern: str = "$", **more: Value) -> list[Map]:
    """All changes, page by page."""
    found: list[Map] = []
    at: Value = more.pop("after", 0)
    while True:
        page = await who(guest, pattern, after=at, **more)
        assert isinstance(page["changes"], tuple)
        found += [each for each in page["changes"] if isinstance(each, Map)]
        if page["upto"] == at:
            return found
        at = page["upto"]


def words(change: Map) -> tuple[Value, ...]:
    names = ("change", "captures", "owners", "client", "sequence", "principal")
    return tuple(change[name] for name in names)


async def test_each_change_has_owner_client_and_token(made: Inside) -> None:
    door = await Guest.arrive(made, DOOR, "~door")
    mine = f"session:{made.hosted.term}.1 @ token:door"
    assert [
        await door.turn(1, (ASSERT, 1, Record("on", 1))),
        await door.turn(2, (ASSERT, 1, Record("on", 2)), owner="hall"),
        await door.turn(3, (RETRACT, 1), (SEND, Record("said", "off"))),
    ] == [APART] * 3
    admin = await Guest.arrive(made, ADMIN, "owner:hall")
    assert await admin.turn(1, (RETRACT, 1), owner="hall") == APART
    assert (
        await admin.ask("publish", publication(owner="pub", keys=(pack((("assert", Record("on", 3)),)),)))
        == APART
    )
    client = "~door @ token:door"
    assert [words(each) for each in await changes(admin, "$what")] == [
        ("+", (Record("on", 1),), (mine,), client, 1, "token:door"),
        ("+", (Record("on", 2),), ("durable:hall",), client, 2, "token:door"),
        ("!", (Record("said", "off"),), (), client, 3, "token:door"),
        ("-", (Record("on", 1),), (mine,), client, 3, "token:door"),
        ("-", (Record("on", 2),), ("durable:hall",), "owner:hall", 1, "token:admin"),
        ("+", (Record("on", 3),), ("durable:pub",), "theirs", 1, "token:admin"),
    ]
    (first, *_) = await changes(admin, "on($n)")
    assert first["address"]
    assert first["captures"] == (1,)


async def test_pages_join_to_the_whole_and_find_what_was_said_before_them(
    made: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await Guest.arrive(made, ADMIN, "owner:hall")
    for number in range(1, 20):
        assert await admin.turn(number, (ASSERT, number, Record("on", number))) == APART
    whole = await changes(admin, "on($n)")
    assert [each["captures"] for each in whole] == [(number,) for number in range(1, 20)]
    assert {each["principal"] for each in whole} == {"token:admin"}
    for most in (1, 2, 7, 19):
        assert await changes(admin, "on($n)", most=most) == whole
    late = whole[-1]["epoch"]
    assert isinstance(late, int)
    assert await changes(admin, "on($n)", after=late - 1) == whole[-1:]


async def test_it_is_said_once_for_a_connection_and_again_after_many_epochs(
    made: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_numbers, "ORIGIN_EPOCHS", 8)
    admin = await Guest.arrive(made, ADMIN, "owner:hall")
    for number in range(1, 18):
        assert await admin.turn(number, (ASSERT, number, Record("on", number))) == APART
    log = made.hosted.log
    said = [
        (entry[0], origin.principal)
        for segment in log.segments(0, log.last)
        for entry in segment.every_entry()
        if (origin := origin_of(entry)) is not None
    ]
    first = said[0][0]
    assert said == [(first + at, "token:admin") for at in (0, 8, 16)]
    assert not list(log.damages())


async def test_it_needs_the_rights_to_inspect_and_to_observe(made: Inside) -> None:
    blind = await Guest.arrive(made, BLIND, "~blind")
    assert await blind.ask("who", {"pattern": parse_pattern("on(_)")}) == "not-allowed"
    narrow = await Guest.arrive(made, "the secret of a narrow one", "~narrow")
    assert await narrow.ask("who", {"pattern": parse_pattern("$")}) == "not-allowed"
    assert await narrow.turn(1, (ASSERT, 1, Record("on", 1))) == APART
    assert [each["change"] for each in await changes(narrow, "on(_)")] == ["+"]
    assert await narrow.ask("who", {"pattern": parse_pattern("on(_)"), "most": 0}) == "bad-request"


async def test_what_an_earlier_daemon_wrote_is_shown_by_the_next(tmp_path: Path) -> None:
    async with inside(tmp_path, keys=KEYS) as made:
        admin = await Guest.arrive(made, ADMIN, "owner:hall")
        assert await admin.turn(1, (ASSERT, 1, Record("on", 1)), owner="hall") == APART
    async with inside(tmp_path, keys=KEYS) as made:
        door = await Guest.arrive(made, DOOR, "owner:hall")
        assert await door.turn(2, (RETRACT, 1), owner="hall") == APART
        assert [(each["change"], each["principal"]) for each in await changes(door, "on(_)")] == [
            ("+", "token:admin"),
            ("-", "token:door"),
        ]


async def test_a_request_that_retracts_is_shown_with_who_asked(made: Inside) -> None:
    door = await Guest.arrive(made, DOOR, "~door")
    admin = await Guest.arrive(made, ADMIN, "owner:hall")
    assert await admin.turn(1, (ASSERT, 1, Record("on", 1)), owner="hall") == APART
    assert await door.ask("withdraw", {"owner": "hall", "pattern": parse_pattern("on(_)")}) == APART
    assert await admin.turn(2, (ASSERT, 2, Record("on", 2)), owner="hall") == APART
    made.hosted.end_owners(["durable:hall"])
    await made.hosted.commits.wait_durable(made.hosted.space.epoch)
    shown = [(each["change"], each["client"], each["principal"]) for each in await changes(admin, "on(_)")]
    assert shown == [
        ("+", "owner:hall", "token:admin"),
        ("-", "", "token:door"),
        ("+", "owner:hall", "token:admin"),
        ("-", "", ""),
    ]


def alike(value: Value) -> Value:
    """An equal value that is another object, where there can be one."""
    made: Value = unpack_own(pack(value))
    return made


@pytest.mark.parametrize("values", [(1, 1.0, True), ("ab", Record("p", "ab"), ("ab", 2.5)), (0.0, -0.0, 0)])
def test_each_owner_of_a_value_is_found_whichever_object_it_claimed(values: Sequence[Value]) -> None:
    one, other, third = values
    copies = [one, alike(one), other, alike(other)]
    claimed = [(), *[(each,) for each in copies], *product(copies, copies)]
    for added, sent, mine, yours in product([(one,), (one, other)], [(), (one,), (third,)], claimed, claimed):
        claims = [
            Claims(owner, [*enumerate(asserted)]) for owner, asserted in (("mine", mine), ("yours", yours))
        ]
        entry = unpack_own(encode(Epoch(1, 1, added, sent, (), claims)).body)
        expected = [
            tuple([each.owner for each in claims if key(value) in [key(it) for _, it in each.asserted]])
            for value in added
        ]
        found = [*changes_of(entry, matcher(parse_pattern("$x")))]
        assert [(owners, key(of)) for kind, owners, (of,) in found if kind == 0] == [
            (owners, key(value)) for owners, value in zip(expected, added, strict=True)
        ]
        assert [owners for kind, owners, _ in found if kind == 1] == [()] * len(sent)
        first = [owners[0] if owners else None for owners in expected]
        assert segments._owners(entry) == first
