"""What a bearer claims carries its stamp, in the name of the owner, and nobody else can have that name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, SEND
from dataspace.transport.tokens import narrow
from dataspace.wire import packets as p
from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value
from server.config.rights import Key, Rights
from server.turns.claims import said_of
from tests.server.owners.test_foreign_names import APART, LEASE, Guest, publication
from tests.server.peers import PLENTY
from tests.server.streams.inside import Inside, inside

GATEWAY, ADMIN, READER = "the secret of a gateway", "the secret of the admin", "the secret of a reader"
STAMPED = narrow(GATEWAY, Map({"name": "seven", "stamp": Map({"by": "sensor-7"})}))
STAMP = Map({"by": "sensor-7"})
BEARER = "token:gateway/seven"
END = f" @ {BEARER} by=sensor-7"
FACT = Record("reading", 1)
MANY = 2_048


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Inside]:
    limited: dict[str, Value] = {"observe": ("reading(_)",), "inspect": True, "assert": ("other(_)",)}
    keys = (Key("gateway", GATEWAY), Key("admin", ADMIN), Key("reader", READER, Rights.read(Map(limited))))
    with trio.fail_after(30):
        async with inside(tmp_path, keys=keys) as made:
            yield made


async def claims(guest: Guest, pattern: str, **more: Value) -> list[Map]:
    """What the verb ``owners`` says."""
    told = Map({"pattern": parse_pattern(pattern), **more})
    await guest.wire.say(p.Request(77, "owners", told))
    heard = await guest.wire.hear()
    assert isinstance(heard, p.Answer), heard
    assert isinstance(heard.value, tuple)
    return [each for each in heard.value if isinstance(each, Map)]


async def code(guest: Guest, pattern: str, **more: Value) -> str:
    return await guest.ask("owners", {"pattern": parse_pattern(pattern), **more})


async def test_every_claim_carries_the_stamp_whoever_s_name_it_is_in(made: Inside) -> None:
    sensor = await Guest.arrive(made, STAMPED, "~sensor")
    done = [
        await sensor.turn(1, (ASSERT, 1, Record("reading", 1))),
        await sensor.ask("lease", {"owner": LEASE}),
        await sensor.turn(2, (ASSERT, 1, Record("reading", 2)), owner=LEASE),
        await sensor.turn(3, (ASSERT, 1, Record("reading", 3)), owner="pub"),
        await sensor.ask(
            "publish", publication(owner="pub", keys=(pack((("assert", Record("reading", 4)),)),))
        ),
        await sensor.ask(
            "publish", publication(owner=LEASE, sequence=2, keys=(pack((("assert", Record("reading", 5)),)),))
        ),
    ]
    assert done == [APART] * len(done)
    await sensor.wire.say(p.Open(1, Map({"pattern": parse_pattern("reading($)")}), PLENTY, PLENTY))
    assert isinstance(await sensor.wire.hear(), p.Values)
    admin = await Guest.arrive(made, ADMIN, "~admin")
    found = await claims(admin, "reading(_)")
    assert sorted(each["fact"].fields[0] for each in found) == [1, 2, 3, 4, 5]  # type: ignore[union-attr, type-var]
    assert {(each["bearer"], each["stamp"]) for each in found} == {(BEARER, STAMP)}
    assert {each["owner"] for each in found} >= {LEASE, "durable:pub"}
    (interest,) = await claims(admin, "Observe(_)")
    assert (interest["bearer"], interest["stamp"]) == (BEARER, STAMP)
    assert all(owner.endswith(END) for owner in made.hosted.space.owners())


async def test_no_name_that_another_bearer_states_has_the_stamp(made: Inside) -> None:
    sensor = await Guest.arrive(made, STAMPED, "~sensor")
    assert await sensor.turn(1, (ASSERT, 1, FACT), owner="pub") == APART
    for number, token in enumerate((ADMIN, narrow(ADMIN, Map({"name": "seven"})), GATEWAY)):
        other = await Guest.arrive(made, token, f"~{number}")
        for at, owner in enumerate([f"pub{END}", f"{LEASE}{END}", END], 1):
            assert await other.turn(at, (ASSERT, 1, FACT), owner=owner) == "bad-request"
        assert await other.turn(9, (ASSERT, 10 + number, FACT), owner="pub") == APART
        assert await other.ask("publish", publication(owner="pub", client=f"x{END}")) == "bad-request"
        guest = Guest(made.connect(trusted=False))
        said = await guest.greet(token, f"~x{END}")
        assert isinstance(said, p.Bye) and said.code == "bad-request"
        await other.wire.say(p.Bye("", ""))
        assert isinstance(await other.wire.hear(), p.Bye)
    admin = await Guest.arrive(made, ADMIN, "~admin")
    found = await claims(admin, "reading(_)")
    assert sorted((str(each["owner"]), len(each["stamp"])) for each in found) == [  # type: ignore[arg-type]
        *[("durable:pub", 0)] * 3,
        ("durable:pub", 1),
    ]


async def test_messages_are_in_the_log_under_an_identity_with_the_stamp(made: Inside) -> None:
    sensor = await Guest.arrive(made, STAMPED, "~sensor")
    robot = await Guest.arrive(made, STAMPED, "robot")
    assert await sensor.turn(1, (SEND, FACT)) == APART
    assert await robot.turn(1, (SEND, FACT)) == APART
    assert await sensor.ask("publish", publication(owner="pub", client="robot")) == APART
    assert set(made.hosted.leading.log.clients) == {f"~sensor{END}", f"robot{END}"}
    other = await Guest.arrive(made, ADMIN, "robot")
    assert await other.turn(1, (SEND, FACT)) == APART, "its own robot has numbers of its own"
    assert made.hosted.leading.log.clients["robot"][0] == 1


async def test_a_narrower_token_keeps_the_stamp_and_may_add_to_it(made: Inside) -> None:
    more = Map({"stamp": Map({"room": "kitchen"}), "name": "k"})
    sensor = await Guest.arrive(made, narrow(STAMPED, more), "~sensor")
    assert await sensor.turn(1, (ASSERT, 1, FACT)) == APART
    admin = await Guest.arrive(made, ADMIN, "~admin")
    (claim,) = await claims(admin, "reading(_)")
    assert claim["bearer"] == f"{BEARER}/k"
    assert claim["stamp"] == Map({"by": "sensor-7", "room": "kitchen"})
    guest = Guest(made.connect(trusted=False))
    said = await guest.greet(narrow(STAMPED, Map({"stamp": Map({"by": "sensor-8"})})), "~forger")
    assert isinstance(said, p.Bye)
    assert (said.code, "stamped by=sensor-7 already" in said.text) == ("unauthorized", True)


async def test_owners_are_shown_of_what_may_be_observed_to_those_who_may_inspect(made: Inside) -> None:
    sensor = await Guest.arrive(made, STAMPED, "~sensor")
    assert await sensor.turn(1, (ASSERT, 1, FACT), (ASSERT, 2, Record("secret", 1))) == APART
    reader = await Guest.arrive(made, READER, "~reader")
    assert [each["fact"] for each in await claims(reader, "reading(_)")] == [FACT]
    assert await code(reader, "secret(_)") == "not-allowed"
    assert await code(reader, "_") == "not-allowed"
    blind = await Guest.arrive(made, narrow(READER, Map({"observe": True})), "~blind")
    assert await code(blind, "reading(_)") == "not-allowed"
    assert await code(reader, "reading(_)", most=0) == "bad-request"


async def test_a_long_list_of_owners_is_cut_and_made_in_slices(made: Inside) -> None:
    hosted = made.hosted
    facts = tuple([(ASSERT, n, Record("reading", n)) for n in range(3 * MANY)])
    hosted.commit("durable:many", facts)
    admin = await Guest.arrive(made, ADMIN, "~admin")
    assert len(await claims(admin, "reading(_)", most=10)) == 10
    assert len(await claims(admin, "reading(_)", most=10_000)) == 3 * MANY
    assert await claims(admin, f"reading({3 * MANY - 1})") == [
        Map({"fact": Record("reading", 3 * MANY - 1), **said_of("durable:many")})
    ]
