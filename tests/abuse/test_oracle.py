"""The oracle of the fuzzer notices each harm that an attacker might do.

A tenant that may do it does it here; that attackers cannot is for ``test_fuzzing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dataspace.codec import pack
from dataspace.kernel.actions import ASSERT, RETRACT, SEND
from dataspace.wire import packets as p
from dataspace.wire.verbs import VERBS
from index.values.values import Map, Record, Value
from tests.abuse.fuzzing import SETTINGS
from tests.abuse.innocents import LEASE, Innocents
from tests.abuse.oracle import Oracle, Violation
from tests.abuse.tenants import ADMIN, INNOCENTS, configuration
from tests.server.processes import DaemonProcess


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with the innocent tenants of the fuzzer."""
    config = tmp_path / "config.toml"
    config.write_text(configuration(INNOCENTS.values(), SETTINGS))
    process = DaemonProcess(tmp_path / "data", "--config", str(config))
    process.start()
    yield process
    process.stop()


def _ask(who: str, verb: str, **arguments: Value) -> Callable[[Innocents], None]:
    """Returns a harm: a second connection of a tenant requests this."""

    def harm(innocents: Innocents) -> None:
        with innocents.client(who, "~second") as second:
            second.request(verb, **arguments)

    return harm


def _turn(owner: str, *actions: tuple[Value, ...]) -> Callable[[Innocents], None]:
    """Returns a harm: a second connection of the administrator commits this."""

    def harm(innocents: Innocents) -> None:
        with innocents.client(ADMIN, "~second") as second:
            second.turn(*actions, owner=owner)

    return harm


def _supersede(innocents: Innocents) -> None:
    innocents.client("nomad", "~nomad").close()


ROWS_OF_ROBOT: Value = (pack(("send", "of_robot", ((1,),), 1)),)


HARMS: dict[str, Callable[[Innocents], None]] = {
    "a turn under the number of another": _ask(
        "robot", "publish", keys=ROWS_OF_ROBOT, owner="robot-9", client="owner:robot-9", sequence=1 << 62
    ),
    "a fact of another that is retracted": _turn("robot-8", (RETRACT, 2)),
    "a fact that is added to those of another": _turn("robot-8", (ASSERT, 99, Record("of_robot", "forged"))),
    "a fact of another that is derived": _turn("x", (ASSERT, 0, Record("of_law", "more"))),
    "a staged batch that is discarded": _ask(ADMIN, "discard", key=("bank",)),
    "a writer that is closed": _ask(ADMIN, "discard", key=("x",), close=("bank",)),
    "a lease that is released": _ask("bank", "release", owner=LEASE),
    "a reader that is moved": _ask("bank", "acknowledge", reader="bank-reader", forget=True),
    "a session that is ended": _supersede,
    "a fact that an attacker may not assert": _turn("x", (ASSERT, 0, Record("of_bank2", "by-viewer", 1))),
    "a message that an attacker may not send": _turn("x", (SEND, Record("of_robot", "by-writer", 1))),
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", sorted(HARMS))
def test_the_oracle_notices(daemon: DaemonProcess, harm: str) -> None:
    innocents = Innocents(daemon, Oracle())
    innocents.step()
    HARMS[harm](innocents)
    with pytest.raises(Violation):
        for _ in range(3):
            innocents.step()
    innocents.close()


@pytest.mark.slow
def test_innocents_alone_and_beside_an_administrator_are_as_the_model(daemon: DaemonProcess) -> None:
    innocents = Innocents(daemon, Oracle())
    for _ in range(5):
        innocents.step()
    admin = innocents.client(ADMIN, "~second", spoken=True)
    spoken = admin.welcome.features["spoken"]
    assert isinstance(spoken, Map) and isinstance(spoken["verbs"], tuple)
    assert set(spoken["verbs"]) <= set(VERBS), "the fuzzer tries every verb"
    admin.close()
    innocents.close()


def test_a_mark_is_found_by_those_who_may_not_see_it() -> None:
    oracle = Oracle()
    mark = oracle.mark("fact", "bank")
    oracle.search("bank", f"<{mark}>".encode())
    with pytest.raises(Violation, match="viewer received Zq7x-fact-0;"):
        oracle.search("viewer", f"<{mark}>".encode())


@pytest.mark.parametrize(
    "packet",
    [p.Bye("internal", "a defect"), p.Denied(1, "no-such-code", ""), p.Refusal(1, "unknown-verb", "")],
)
def test_an_answer_that_the_wire_does_not_know_is_found(packet: p.Packet) -> None:
    oracle = Oracle()
    oracle.judge("viewer", p.Denied(1, "not-allowed", ""))
    with pytest.raises(Violation):
        oracle.judge("viewer", packet)
