"""What belongs to one tenant, no other takes, ends, changes or reads, although it knows every name.

One daemon serves all tests here, with the tenants of the fuzzer; each test has owners and keys of its own.
"""

from __future__ import annotations

import time

import pytest

from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire import packets as p
from index.values.values import Map, Record, Value
from tests.abuse.lines import PATIENCE, Client
from tests.abuse.tenants import ADMIN
from tests.abuse.visits import Visits

pytestmark = pytest.mark.slow

REFUSED = frozenset(["not-allowed", "not-owner"])


def refused(answer: p.Answer | p.Denied | p.Refusal) -> None:
    """Checks that something was refused because of whose it is."""
    assert isinstance(answer, p.Denied | p.Refusal) and answer.code in REFUSED, answer


def turned(client: Client, *actions: tuple[Value, ...], owner: str = "") -> p.Refusal | p.Accepted:
    """Sends a turn; returns its answer."""
    client.sequence += 1
    client.say(p.Turn(client.sequence, "main", owner, actions))
    client.settle()
    client.request("sync")
    client.settle()
    for each in client.heard:
        if isinstance(each, p.Refusal) and each.sequence == client.sequence:
            return each
    return client.expect(p.Accepted)


@pytest.mark.parametrize("identity", ["robot-8", "owner:robot-9"])
@pytest.mark.parametrize("sequence", [2, 1 << 62])
def test_turn_numbers_belong_to_the_identity_that_proved_them(
    visits: Visits, identity: str, sequence: int
) -> None:
    robot = visits.come("robot", identity)
    robot.turn((SEND, Record("of_robot", 1)))
    thief = visits.come("publisher")
    rows = pack(("assert", "of_publisher", ((1,),), 1))
    taken = {"keys": (rows,), "owner": "pub", "client": identity, "sequence": robot.sequence + sequence}
    refused(thief.asked("publish", **taken))  # type: ignore[arg-type]  # values
    assert robot.turn((SEND, Record("of_robot", 2))) > 0
    robot.close()
    assert visits.come("robot", identity).sequence == robot.sequence, "no number was used up"


def test_a_hello_with_the_identity_of_another_is_not_admitted(visits: Visits) -> None:
    robot = visits.come("robot", "robot-8")
    for who in ("writer", "publisher", "inspector"):
        with pytest.raises(AssertionError, match="not-allowed"):
            visits.come(who, "robot-8")
    robot.turn((SEND, Record("of_robot", 3)))


SECRETS: tuple[Value, ...] = (
    ("assert", Record("rule", "stolen", "of_publisher($x) <- of_bank($x).")),
    ("assert", Record("of_bank", 42)),
)


def test_what_is_staged_is_published_by_its_owner_alone(visits: Visits) -> None:
    admin, thief = visits.come(ADMIN), visits.come("publisher")
    admin.request("stage", key=("night", "0"), operations=SECRETS)
    stolen: dict[str, Value] = {"keys": (("night", "0"),), "owner": "pub", "client": "pub", "sequence": 1}
    assert isinstance(thief.asked("publish", **stolen), p.Denied)
    assert visits.facts("of_bank") == []
    assert admin.request("publish", **{**stolen, "owner": "night", "client": "night"})
    assert visits.facts("of_bank") == [(42,)]
    admin.turn(owner="night")


@pytest.mark.parametrize("who", ["viewer", "publisher", "writer", "reader"])
def test_what_is_staged_is_discarded_and_closed_by_its_owner_alone(visits: Visits, who: str) -> None:
    admin, vandal, key = visits.come(ADMIN), visits.come(who), ("day", who)
    admin.request("stage", key=key, operations=(("assert", Record("of_day", who)),))
    vandal.asked("discard", key=("day",))
    vandal.asked("discard", key=key, close=("day",))
    rows = pack(("assert", f"of_{who}", ((1,),), 1))
    vandal.asked(
        "publish", keys=(rows,), owner="pub", client="pub", sequence=1 << 20, discard=("day",), close=("day",)
    )
    admin.request("stage", key=key, operations=(("assert", Record("of_day", who, 2)),))
    admin.request("publish", keys=(key,), owner=f"day-{who}", client=f"day-{who}", sequence=1)
    assert (who,) in visits.facts("of_day")


def test_a_lease_is_renewed_used_and_released_by_its_maker_alone(visits: Visits) -> None:
    """Others may have a lease of the same name, which is another one."""
    name = "lease:600000:vault"
    bank, thief, publisher = visits.come("bank"), visits.come("writer"), visits.come("publisher")
    bank.request("lease", owner=name)
    bank.turn((ASSERT, 1, Record("of_bank", "leased")), owner=name)
    for verb in ("renew", "release"):
        thief.asked(verb, owner=name)
        assert isinstance(turned(thief, (RETRACT, 1), owner=name), p.Refusal)
    thief.asked("lease", owner=name)
    assert isinstance(turned(thief, (RETRACT, 1), owner=name), p.Refusal)
    thief.asked("release", owner=name)
    rows = pack(("retract", (("of_bank", "leased"),), ()))
    for replace in (False, True):
        publisher.asked("publish", keys=(rows,), owner=name, client="pub", sequence=1 << 30, replace=replace)
    assert ("leased",) in visits.facts("of_bank")
    bank.request("renew", owner=name)
    bank.request("release", owner=name)
    assert ("leased",) not in visits.facts("of_bank")


def test_nobody_prolongs_the_lease_of_another(visits: Visits) -> None:
    """A lease that its maker does not renew ends, however often others renew what they call the same."""
    name = "lease:1000:brief"
    bank, thief = visits.come("bank"), visits.come("writer")
    bank.request("lease", owner=name)
    bank.turn((ASSERT, 1, Record("of_bank", "brief")), owner=name)
    thief.asked("lease", owner=name)
    until = time.monotonic() + PATIENCE
    while ("brief",) in visits.facts("of_bank"):
        thief.asked("renew", owner=name)
        assert time.monotonic() < until, "the lease goes on"


def test_producers_and_topics_belong_to_those_who_made_them(visits: Visits) -> None:
    press, thief = visits.come("press"), visits.come("author")
    joined = press.request("join", topic="ledger", durable=True, name="press-desk", away=60_000)
    assert isinstance(joined, Map)
    producer = joined["producer"]
    assert isinstance(producer, int)
    refused(thief.asked("join", topic="ledger", durable=True, name="press-desk", away=60_000, back=True))
    refused(thief.asked("join", topic="ledger", durable=True))
    thief.number += 1
    thief.say(p.Produce(thief.number, producer, ((0, 0, pack(("forged",))),)))
    answer = thief.answer(thief.number)
    assert isinstance(answer, p.Denied) and answer.code == "no-producer"
    press.number += 1
    press.say(p.Produce(press.number, producer, ((2,),)))
    press.answer(press.number)
    refused(thief.asked("end-topic", topic="ledger"))
    assert isinstance(press.request("lookup", topic="ledger"), Map)
    press.request("end-topic", topic="ledger")


def test_tokens_narrowed_from_one_secret_are_two_principals(visits: Visits) -> None:
    abel = visits.come("abel", "~brother", grace=60_000)
    abel.turn((ASSERT, 0, Record("of_abel", 1)))
    with pytest.raises(AssertionError, match="not-allowed"):
        visits.come("cain", "~brother")
    with pytest.raises(AssertionError, match="not-allowed"):
        visits.come("cain", "~brother", resume=(abel.welcome.session, abel.welcome.features["secret"]))
    abel.turn((SEND, Record("of_abel", 2)))
    assert visits.facts("of_abel") == [(1,)]


def test_a_wrong_resume_secret_ends_no_session(visits: Visits) -> None:
    nomad = visits.come("nomad", "~tent", grace=60_000)
    nomad.turn((ASSERT, 0, Record("of_nomad", 1)))
    session, secret = nomad.welcome.session, nomad.welcome.features["secret"]
    nomad.close(reset=True)
    for who in ("writer", "cain", "inspector"):
        with pytest.raises(AssertionError, match="not-allowed"):
            visits.come(who, "~tent", resume=(session, b"0123456789abcdef"))
    assert visits.facts("of_nomad") == [(1,)]
    back = visits.come("nomad", "~tent", grace=60_000, resume=(session, secret))
    assert back.welcome.features.get("resumed") is True
