"""A client finds the daemon that serves it, whatever the others say, and never without end or pause."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from dataspace.errors import ProtocolError, Unreachable, UsageError
from dataspace.transport.addresses import Address, is_own_machine, parse_url
from dataspace.transport.candidates import HOPS, Candidates, joined, may_send_on, parse_urls

LISTED = tuple(parse_url(f"tcp://{name}:1") for name in "abc")
ELSE = tuple(parse_url(f"tcp://{name}:1") for name in "xyz")

DOWN, SERVES, NOBODY = "down", "serves", "no-leader"

World = Mapping[Address, str]
"""What is at each address: nothing, a daemon that serves, or one that sends clients away."""


def a_round(candidates: Candidates, world: World) -> tuple[list[Address], bool]:
    """The addresses that a client tries in one round, and whether one has served it."""
    tried: list[Address] = []
    candidates.begin()
    while (address := candidates.next_address()) is not None:
        tried.append(address)
        assert len(tried) <= len(candidates.listed) + HOPS + 1, "a round without end"
        match world.get(address, DOWN):
            case "down":
                pass
            case "serves":
                candidates.welcomed()
                return tried, True
            case "no-leader":
                candidates.sent_away(ProtocolError("no-leader", "", LISTED[0].url))
            case url:
                candidates.sent_away(ProtocolError("elsewhere", "", url))
    return tried, False


def _worlds() -> list[dict[Address, str]]:
    states = (DOWN, SERVES, NOBODY, *[each.url for each in (*LISTED, ELSE[0])], "rubbish")
    beyond = (DOWN, SERVES, LISTED[0].url, ELSE[0].url)
    return [
        dict(zip((*LISTED, ELSE[0]), (*some, other), strict=True))
        for some in itertools.product(states, repeat=3)
        for other in beyond
    ]


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_round_ends_and_finds_every_daemon_that_serves(shuffled: bool) -> None:
    """All small worlds: down, serving, without a leader, sent to itself, to one another, or elsewhere."""
    for world in _worlds():
        candidates = Candidates(LISTED, shuffled=shuffled)
        serves = any(world[each] == SERVES for each in LISTED)
        for _ in range(4):
            tried, found = a_round(candidates, world)
            if found:
                assert world[tried[-1]] == SERVES and candidates.now == tried[-1]
                break
            assert set(LISTED) <= {*tried} and not serves, (world, tried)


def test_a_daemon_that_is_not_listed_is_found_where_a_listed_one_names_it() -> None:
    for world in _worlds():
        if world[ELSE[0]] != SERVES or any(world[each] == SERVES for each in LISTED):
            continue
        found = a_round(Candidates(LISTED), world)[1]
        sent_there = [each for each in LISTED if world[each] == ELSE[0].url]
        loops = [each for each in LISTED if world[each] in {one.url for one in LISTED}]
        if sent_there and not loops:
            assert found, world


@pytest.mark.parametrize("ring", [1, 2, 3])
def test_daemons_that_send_to_one_another_do_not_loop_hot(ring: int) -> None:
    around = ELSE[:ring]
    world = {each: around[(at + 1) % ring].url for at, each in enumerate(around)} | {LISTED[0]: ELSE[0].url}
    candidates = Candidates(LISTED[:1])
    rounds = [len(a_round(candidates, world)[0]) for _ in range(50)]
    assert rounds[0] <= 2 + HOPS and all(tried <= 2 for tried in rounds[2:]), rounds
    candidates.lasted()
    assert len(a_round(candidates, world)[0]) <= 3 + HOPS


@pytest.mark.parametrize("ring", [1, 2])
def test_daemons_that_welcome_and_then_send_away_do_not_loop_hot(ring: int) -> None:
    """As where a turn is refused: no hop in a row is free because a welcome came between."""
    candidates, free = Candidates(LISTED[:1]), 0
    for hop in range(20):
        candidates.begin()
        candidates.next_address()
        candidates.welcomed()
        candidates.sent_away(ProtocolError("elsewhere", "", ELSE[hop % ring].url))
        free += candidates.is_sent_on
    assert free <= HOPS


def test_a_chain_longer_than_the_hops_is_followed_with_pauses() -> None:
    far = [parse_url(f"tcp://far{n}:1") for n in range(HOPS + 1)]
    world = {each: after.url for each, after in itertools.pairwise([LISTED[0], *far])} | {far[-1]: SERVES}
    candidates = Candidates(LISTED[:1])
    assert not a_round(candidates, world)[1] and a_round(candidates, world)[1]


@pytest.mark.parametrize("ring", [2, 3])
def test_the_leader_is_found_beside_daemons_that_welcome_and_then_send_to_one_another(ring: int) -> None:
    around, leader = ELSE[:ring], LISTED[0]
    candidates = Candidates([*around, leader])
    for _ in range(20):
        candidates.begin()
        while (address := candidates.next_address()) not in (*around, leader):
            assert address is not None
        candidates.welcomed()
        if address == leader:
            return
        assert address is not None
        after = around[(around.index(address) + 1) % ring]
        candidates.sent_away(ProtocolError("elsewhere", "", after.url))
    raise AssertionError("the leader was not found")


def test_the_last_good_address_comes_first_and_one_that_sent_the_client_away_last() -> None:
    candidates = Candidates(LISTED)
    a_round(candidates, {LISTED[1]: SERVES})
    assert a_round(candidates, {})[0] == [LISTED[1], LISTED[0], LISTED[2]]
    assert a_round(candidates, {LISTED[1]: NOBODY})[0][0] == LISTED[1]
    assert a_round(candidates, {})[0] == [LISTED[0], LISTED[2], LISTED[1]]


def test_one_address_is_tried_once_in_a_round() -> None:
    candidates = Candidates(LISTED[:1])
    assert [a_round(candidates, {})[0] for _ in range(3)] == [[LISTED[0]]] * 3


@given(st.randoms(use_true_random=False))
def test_shuffled_ones_are_the_listed_ones(_seed: object) -> None:
    tried, _ = a_round(Candidates(LISTED, shuffled=True), {})
    assert sorted(each.url for each in tried) == [each.url for each in LISTED]


# -- what may send where ------------------------------------------------------------------------------

FD, UNIX, HERE, HERE_TLS = parse_urls("fd:3,unix:///run/a.sock,tcp://127.0.0.1:1,tls://localhost:1")
FAR, FAR_TLS = parse_urls("tcp://far:1,tls://far:1")
ALLOWED = {
    FD: {UNIX, HERE, HERE_TLS, FAR_TLS},
    UNIX: {UNIX, HERE, HERE_TLS, FAR_TLS},
    HERE: {UNIX, HERE, HERE_TLS, FAR, FAR_TLS},
    HERE_TLS: {HERE_TLS, FAR_TLS},
    FAR: {FAR, FAR_TLS},
    FAR_TLS: {FAR_TLS},
}


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.product(ALLOWED, repeat=2)), ids=lambda each: each.url
)
def test_no_daemon_sends_a_client_to_a_less_secure_address(source: Address, target: Address) -> None:
    allowed = target in ALLOWED[source]
    assert may_send_on(source, target) == allowed
    candidates = Candidates([source])
    tried, _ = a_round(candidates, {source: target.url})
    assert (target in tried) == (allowed or target == source)


def test_an_address_that_the_program_lists_is_tried_wherever_it_is_named() -> None:
    tried, found = a_round(Candidates([FAR_TLS, FAR]), {FAR_TLS: FAR.url, FAR: SERVES})
    assert found and tried == [FAR_TLS, FAR]


# -- as text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "urls",
    [
        "tcp://a:7377,tls://b:7377",
        "tcp://a:7377 , tls://b:7377,tcp://a:7377",
        ["tcp://a:7377", "tls://b"],
        ("tcp://a,tls://b", "tcp:a:7377"),
    ],
)
def test_addresses_are_text_with_commas_or_a_sequence(urls: str | list[str]) -> None:
    assert joined(parse_urls(urls)) == "tcp://a:7377,tls://b:7377"


def test_a_comma_in_a_path_is_a_part_of_it() -> None:
    assert [each.path for each in parse_urls("unix:///a,b,unix:///c")] == ["/a,b", "/c"]


def test_none_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASPACE_URL", "tcp://a:1,tcp://b:2")
    assert joined(parse_urls(None)) == "tcp://a:1,tcp://b:2"
    monkeypatch.delenv("DATASPACE_URL")
    assert joined(parse_urls(None)) == "tcp://127.0.0.1:7377"


@pytest.mark.parametrize(
    "wrong", ["tcp://a:1,", ",tcp://a:1", "tcp://a:1,b", [], ["tcp://a:1", ""], "tcp://a:1;"]
)
def test_others_are_refused(wrong: str | list[str]) -> None:
    with pytest.raises(UsageError, match="address"):
        parse_urls(wrong)


OWN = [
    *("localhost", "LOCALHOST", "localhost.", "LocalHost.localdomain", "a.localhost", "ip6-localhost"),
    *("127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "127.0.0.1.", "0x7f.1", "0x7f000001"),
    *("2130706433", "017700000001", "0177.0.0.1", "0.0.0.0", "0", "0.0.0.1"),
    *("[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]"),
    *("[::ffff:0.0.0.0]", "[64:ff9b::7f00:1]"),
]
"""Spellings of addresses by which a machine reaches itself."""

OTHERS = [
    *("10.0.0.1", "example.org", "128.0.0.1", "1.127.0.0", "192.168.1.1", "localhost.example.org"),
    *("mylocalhost", "[::2]", "[fe80::1]", "[2001:db8::1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]"),
]


def test_a_daemon_of_another_machine_sends_no_client_to_its_own_in_any_spelling() -> None:
    far = parse_url("tls://far:1")
    for host in OWN:
        target = parse_url(f"tls://{host}:1")
        assert is_own_machine(target.host) and not may_send_on(far, target), host
        assert may_send_on(parse_url("tls://127.0.0.1:2"), target), host
    for host in OTHERS:
        target = parse_url(f"tls://{host}:1")
        assert not is_own_machine(target.host) and may_send_on(far, target), host


@pytest.mark.parametrize("peer", ["127.0.0.1:1", "127.9.9.9:1", "::1:1", "::ffff:127.0.0.1:1", "unix"])
def test_a_name_is_judged_by_the_address_that_it_has(peer: str) -> None:
    """A name may resolve to anything: nothing is sent to a socket of this machine that another one named."""
    candidates = Candidates(LISTED)
    candidates.begin()
    candidates.next_address()
    candidates.check_reached("10.0.0.1:1")
    candidates.sent_away(ProtocolError("elsewhere", "", ELSE[0].url))
    assert candidates.next_address() == ELSE[0]
    with pytest.raises(Unreachable, match="is on this machine"):
        candidates.check_reached(peer)
    candidates.check_reached("10.0.0.2:1")
    candidates.now = LISTED[0]
    candidates.check_reached(peer)  # that this client has named
    candidates.now = ELSE[1]
    candidates.check_reached(peer)  # that a daemon of this machine has named
