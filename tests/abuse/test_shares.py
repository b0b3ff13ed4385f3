"""One client's bytes and counts leave enough for all others, and what it had is given back.

Each attack takes until it is refused, with the typed answer, and then an innocent at another address takes
some of the same.  Memory is that of the daemon's process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import server
from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire import packets as p
from dataspace.wire.session import encode
from index.values.values import Map, Record, Value
from server.config.principals import Quotas
from tests.abuse.lines import ELSEWHERE, Client, Line
from tests.abuse.oracle import Violation
from tests.abuse.sizes import LARGE, report
from tests.abuse.stage import HELD, Stage

MIB: Final = 1 << 20
ROOT: Final = Path(__file__).parents[2]
KEPT: Final = 64 * MIB
"""What a daemon may keep of what was given back: 32 MiB beyond a third more than it uses, by its own rule."""
PAGE: Final = Path(server.__file__).parent / "SERVE.md"


@pytest.mark.slow
@pytest.mark.torture
def test_large_facts_have_a_limit_in_bytes(tmp_path: Path) -> None:
    """60 facts of 4 MB took a daemon from 37 to 1 322 MB."""
    most = 256 if LARGE else 96
    with Stage(tmp_path, settings=f'[limits]\nfacts_bytes = "{most}MiB"\n') as stage:
        attacker, code, count = stage.client("glutton"), "", 0
        while not code:
            code = _large(attacker, count, 3_900_000)
            count += 1
            stage.trip([attacker])
            assert count < 200
        assert code == "limit"
        assert stage.grown() < 3 * most * MIB
        report("large facts", stage, code)
        attacker.turn(*[(RETRACT, number) for number in range(count - 1)])
        stage.wait_given_back(KEPT)
        assert stage.trips.worst < HELD


# -- counts --------------------------------------------------------------------------------------------


def _code(answer: p.Answer | p.Denied) -> str:
    return answer.code if isinstance(answer, p.Denied) else ""


def _lease(client: Client, number: int) -> str:
    return _code(client.asked("lease", owner=f"lease:600000:{client.who}{number}"))


def _topic(client: Client, number: int) -> str:
    return _code(client.asked("join", topic=f"{client.who}{number}"))


def _retained(client: Client, number: int) -> str:
    return _code(client.asked("join", topic=f"{client.who}{number}", retain=MIB))


def _reader(client: Client, number: int) -> str:
    return _code(client.asked("acknowledge", reader=f"{client.who}{number}", epoch=1))


def _staged(client: Client, number: int) -> str:
    rows = pack(("assert", "staged", (("x" * 500_000,),), 1))
    return _code(client.asked("stage", key=(client.who, str(number)), rows=rows))


def _turned(client: Client, *actions: tuple[Value, ...], owner: str = "") -> str:
    """Commits a turn; returns the code of its refusal, or none."""
    client.sequence += 1
    client.say(p.Turn(client.sequence, "main", owner, actions))
    while not client.over:
        for each in client.heard:
            if isinstance(each, p.Refusal) and each.sequence == client.sequence:
                return each.code
            if isinstance(each, p.Accepted) and each.first == client.sequence:
                client.heard.clear()
                return ""
        client.wait()
    return "over"


def _stream(client: Client, number: int, what: str = "") -> str:
    client.heard.clear()
    stream = client.open({"pattern": Record("p", client.who, number, what), "quiet": True})
    client.settle()
    found = [each.code for each in client.heard if isinstance(each, p.Error) and each.stream == stream]
    return found[0] if found else ""


def _shape(client: Client, number: int) -> str:
    """Observes a pattern whose wildcards are at positions of its own."""
    levels = tuple([Record("_") if number >> at & 1 else "q" for at in range(8)])
    client.heard.clear()
    stream = client.open({"pattern": Record("p", levels), "quiet": True})
    client.settle()
    found = [each.code for each in client.heard if isinstance(each, p.Error) and each.stream == stream]
    return found[0] if found else ""


def _group(client: Client, number: int) -> str:
    """Makes a group, and is its member no longer."""
    client.heard.clear()
    pattern = Record("job", client.who)
    stream = client.open({"kind": "consume", "group": f"{client.who}{number}", "pattern": pattern})
    while not client.over:
        for each in client.heard:
            if isinstance(each, p.Error) and each.stream == stream:
                return each.code
            if isinstance(each, p.Values) and each.stream == stream:
                client.say(p.Abort(stream, "", answer=False))
                client.settle()
                return ""
        client.wait()
    return "over"


def _rule(client: Client, number: int) -> str:
    name = f"{client.who}-{number}"
    text = f"r{number}($x) <- b($x)."
    return _turned(client, (ASSERT, number, Record("rule", name, text)))


def _pattern(client: Client, number: int) -> str:
    return _stream(client, number, "x" * 20_000)


def _fact(client: Client, number: int) -> str:
    return _turned(client, (ASSERT, number, Record("fact", client.who, number)))


def _large(client: Client, number: int, size: int = 3_900_000) -> str:
    return _turned(client, (ASSERT, number, Record("large", client.who, number, "x" * size)))


TAKEN: Final[dict[str, tuple[Callable[[Client, int], str], str]]] = {
    "leases": (_lease, "leases = 20"),
    "topics": (_topic, "topics = 20"),
    "retained bytes": (_retained, 'retained_bytes = "20MiB"'),
    "rules": (_rule, "rules = 20"),
    "bytes of rules": (_rule, "rules_bytes = 500"),
    "bytes of patterns": (_pattern, 'patterns_bytes = "1MiB"'),
    "shapes of patterns": (_shape, "shapes = 20"),
    "readers": (_reader, "readers = 20"),
    "groups": (_group, "groups = 20"),
    "staged bytes": (_staged, 'staged_bytes = "16MiB"'),
    "streams": (_stream, "streams = 50"),
    "facts": (_fact, "facts = 100"),
    "bytes of facts": (_large, 'facts_bytes = "32MiB"'),
}


PLACES: Final = "tests/server/sessions/test_places.py"
SHOWN: Final = {
    "connections": f"{PLACES}::test_connections_of_one_address_are_bounded",
    "strangers": f"{PLACES}::test_silent_connections_of_one_address_keep_no_other_out",
    "waiting_sessions": (
        "tests/server/sessions/test_grace.py"
        "::test_sessions_that_one_client_leaves_behind_take_no_place_from_another"
    ),
    "identities": "tests/abuse/test_shares.py::test_identities_of_one_address_push_out_no_others",
    "actions_per_publication": (
        "tests/server/publication/test_publish.py::test_a_publication_is_read_up_to_the_quota_of_its_bearer"
    ),
    "turns_per_second": "tests/abuse/test_shares.py::test_who_goes_beyond_a_rate_waits_alone",
    "requests_per_second": "tests/abuse/test_shares.py::test_who_goes_beyond_a_rate_waits_alone",
}
"""Quotas beyond which nothing is refused to a client that is connected, and where each is shown."""

LISTED: Final = {
    "connections": {"connections", "waiting_sessions"},
    "strangers": {"strangers"},
    "facts and bytes": {"facts", "facts_bytes"},
    "patterns": {"streams", "patterns_bytes", "shapes"},
    "leases": {"leases"},
    "readers": {"readers"},
    "groups": {"groups"},
    "topics": {"topics", "retained_bytes"},
    "rules": {"rules", "rules_bytes"},
    "staged bytes": {"staged_bytes"},
    "identities": {"identities"},
    "publications": {"actions_per_publication"},
    "requests and turns per second": {"requests_per_second", "turns_per_second"},
}
"""What has to have quotas, and those that it has."""


@pytest.mark.parametrize("what", sorted(LISTED))
def test_each_share_has_a_quota_that_is_described_and_attacked(what: str) -> None:
    attacked = {setting.partition(" ")[0] for _, setting in TAKEN.values()}
    page = PAGE.read_text(encoding="utf-8")
    for quota in LISTED[what]:
        assert quota in Quotas.__dataclass_fields__
        assert len(re.findall(rf"^\|.*`quota\.{quota}`.*\|$", page, re.MULTILINE)) == 1
        if quota not in attacked:
            file, name = SHOWN[quota].split("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_no_quota_is_left_out() -> None:
    assert set().union(*LISTED.values()) == set(Quotas.__dataclass_fields__)


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("what", sorted(TAKEN))
def test_one_address_cannot_take_all(tmp_path: Path, what: str) -> None:
    """What three clients of one address have together is bounded; others have theirs."""
    take, quota = TAKEN[what]
    with Stage(tmp_path, settings=f"[quota]\n{quota}\n") as stage:
        attackers, codes = stage.clients("glutton", 3), list[str]()
        for attacker in attackers:
            code, count = "", 0
            while not code and count < 200:
                code = take(attacker, count)
                count += 1
            codes.append(code)
            stage.trip(attackers)
        assert codes == ["limit"] * 3
        innocent = stage.client("late", source=ELSEWHERE)
        assert take(innocent, 0) == ""
        assert stage.grown() < 128 * MIB
        report(f"all {what}", stage, codes[0])
        assert stage.trips.worst < HELD


@pytest.mark.slow
@pytest.mark.torture
def test_silent_connections_do_not_keep_others_out(tmp_path: Path) -> None:
    """219 silent connections a second from one address kept 62 of 74 others out."""
    count = 1_000 if LARGE else 300
    with Stage(tmp_path) as stage:
        silent: list[Line] = []
        for number in range(count):
            silent.append(Line(stage.port, stage.oracle, "silent"))
            if number % (count // 74) == 0:
                stage.client(f"late{number}", source=ELSEWHERE).close()
            if number % 20 == 0:
                stage.trip()
        for each in silent:
            each.close()
        report("silent connections", stage, "limit or timeout")
        assert stage.trips.worst < HELD


@pytest.mark.slow
@pytest.mark.torture
def test_identities_are_not_kept_for_ever(tmp_path: Path) -> None:
    """6 000 identities of 4 kB stayed for ever, also after a restart."""
    count = 6_000 if LARGE else 1_500
    with Stage(tmp_path) as stage:
        codes = set()
        for number in range(count):
            name = f"{number:06}" + "x" * 4_000
            try:
                with stage.client(f"many{number}", identity=name) as line:
                    codes.add(_turned(line, (SEND, Record("once"))))
            except Violation as violation:
                assert "limit" in str(violation)
                codes.add("limit")
            if number % 100 == 0:
                stage.trip()
        report("identities of 4 kB", stage, " ".join(sorted(codes)))
        assert "limit" in codes or stage.grown() < 8 * MIB
        assert stage.grown() < 64 * MIB


@pytest.mark.slow
@pytest.mark.torture
def test_identities_of_one_address_push_out_no_others(tmp_path: Path) -> None:
    """An identity that is forgotten has its turn applied again."""
    settings = "[limits]\nidentities = 100\n[quota]\nidentities = 50\n"
    with Stage(tmp_path, settings=settings) as stage:
        mine = stage.client("late", identity="late", source=ELSEWHERE)
        epoch = mine.turn((SEND, Record("once")))
        mine.close()
        for number in range(500 if LARGE else 200):
            with stage.client(f"many{number}", identity=f"many{number}") as line:
                line.turn((SEND, Record("many", number)))
            stage.trip()
        again = stage.client("late", identity="late", source=ELSEWHERE)
        again.say(p.Turn(1, "main", "", ((SEND, Record("once")),)))
        assert again.expect(p.Accepted).epochs == (epoch,), "it was applied once"
        report("identities", stage, "forgets its own")
        assert stage.trips.worst < HELD


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("what", ["turns", "requests"])
def test_who_goes_beyond_a_rate_waits_alone(tmp_path: Path, what: str) -> None:
    """What it sends is read later; nothing is refused."""
    with Stage(tmp_path, settings=f"[quota]\n{what}_per_second = 10\n") as stage:
        attacker, count = stage.client("hasty"), 1_000
        sent = [
            p.Turn(n, "main", "", ()) if what == "turns" else p.Request(n, "frontier", Map())
            for n in range(1, count + 1)
        ]
        attacker.send(b"".join(map(encode, sent)))
        for _ in range(20):
            stage.trip([attacker])
        attacker.drain()
        answers = [each for each in attacker.heard if isinstance(each, p.Accepted | p.Answer)]
        assert len(answers) == len(attacker.heard)
        assert sum(len(each.epochs) if isinstance(each, p.Accepted) else 1 for each in answers) < count
        report(f"{what} beyond a rate", stage, "waits")
        assert stage.trips.worst < HELD
