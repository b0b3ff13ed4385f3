"""One client's bytes and counts leave enough for all others, and what it had is given back.

Each attack takes until it is refused, with the typed answer, and then an innocent at another address takes
some of the same.  Memory is that of the daemon's process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire import packets as p
from index.values.values import Record, Value
from tests.abuse.lines import ELSEWHERE, Client, Line
from tests.abuse.oracle import Violation
from tests.abuse.sizes import LARGE, report
from tests.abuse.stage import HELD, Stage

pytestmark = [pytest.mark.slow, pytest.mark.torture]

MIB: Final = 1 << 20


def test_large_facts_have_a_limit_in_bytes(tmp_path: Path) -> None:
    """60 facts of 4 MB took a daemon from 37 to 1 322 MB."""
    most = 256 if LARGE else 64
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
        stage.wait_given_back(most // 2 * MIB)
        assert stage.trips.worst < HELD


# -- counts --------------------------------------------------------------------------------------------


def _code(answer: p.Answer | p.Denied) -> str:
    return answer.code if isinstance(answer, p.Denied) else ""


def _lease(client: Client, number: int) -> str:
    return _code(client.asked("lease", owner=f"lease:600000:{client.who}{number}"))


def _topic(client: Client, number: int) -> str:
    return _code(client.asked("join", topic=f"{client.who}{number}"))


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


def _stream(client: Client, number: int) -> str:
    client.heard.clear()
    stream = client.open({"pattern": Record("p", client.who, number), "quiet": True})
    client.settle()
    found = [each.code for each in client.heard if isinstance(each, p.Error) and each.stream == stream]
    return found[0] if found else ""


def _fact(client: Client, number: int) -> str:
    return _turned(client, (ASSERT, number, Record("fact", client.who, number)))


def _large(client: Client, number: int, size: int = 3_900_000) -> str:
    return _turned(client, (ASSERT, number, Record("large", client.who, number, "x" * size)))


TAKEN: Final[dict[str, tuple[Callable[[Client, int], str], str]]] = {
    "leases": (_lease, "leases = 20"),
    "topics": (_topic, "topics = 20"),
    "readers": (_reader, "readers = 20"),
    "staged bytes": (_staged, 'staged_bytes = "16MiB"'),
    "streams": (_stream, "streams = 50"),
    "facts": (_fact, "facts = 100"),
    "bytes of facts": (_large, 'facts_bytes = "32MiB"'),
}


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
