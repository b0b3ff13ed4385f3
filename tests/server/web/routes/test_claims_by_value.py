"""An owner that names facts by value has one claim on each, through every door that does so.

The model is a set of facts for each owner.  Requests over HTTP, puts, withdrawals and commands of a shell
change it, and a client that claims facts of the same owner under handles of its own does as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dataspace import Record
from dataspace.client.bulk.short import ShortClient
from dataspace.kernel.actions import ASSERT
from index.patterns.text import parse_pattern
from server.cli.main import main
from tests.server.web.routes.callers import HttpDaemon, record

OWNERS: Final = ("shop", "lease:600000:desk")
PROGRAMS: Final = 12
STEPS: Final = 10

Fact = tuple[int, int]
Model = dict[str, set[Fact]]


class Space:
    """One label of a daemon: what doors do to it, and what they should have done."""

    def __init__(self, daemon: HttpDaemon, label: str, choose: random.Random) -> None:
        self.daemon, self.label, self.choose = daemon, label, choose
        self.owned: Model = {f"{owner}{label}": set() for owner in OWNERS}
        self.program: list[object] = []

    def step(self) -> None:
        """Does one thing through one door, to the daemon and to the model."""
        owner = self.choose.choice(list(self.owned))
        do = self.choose.choice([self._turn, self._turn, self._turn, self._put, self._withdraw, self._shell])
        if not owner.startswith("lease"):
            do = self.choose.choice([do, do, do, self._claim])
        do(owner, self.owned[owner])

    def _fact(self) -> Fact:
        return self.choose.randrange(2), self.choose.randrange(2)

    def _json(self, fact: Fact) -> object:
        return record(self.label, *fact)

    def _text(self, fact: Fact) -> str:
        return f"{self.label}({fact[0]}, {fact[1]})"

    def _turn(self, owner: str, owned: set[Fact]) -> None:
        actions: list[dict[str, object]] = []
        for _ in range(self.choose.randint(1, 3)):
            fact, other = self._fact(), self._fact()
            match self.choose.choice(["assert", "assert", "retract", "replace"]):
                case "assert":
                    actions.append({"assert": self._json(fact)})
                    owned.add(fact)
                case "retract":
                    actions.append({"retract": self._json(fact)})
                    owned.discard(fact)
                case _:
                    actions.append({"replace": self._json(fact), "with": self._json(other)})
                    owned.discard(fact)
                    owned.add(other)
        self.program.append((owner, actions))
        assert self.daemon.turn(*actions, owner=owner).status == 200

    def _put(self, owner: str, owned: set[Fact]) -> None:
        fact = self._fact()
        self.program.append((owner, "put", fact))
        answer = self.daemon.turn({"assert": self._json(fact)}, owner=owner, by=f"{self.label}($k, _)")
        assert answer.status == 200
        owned -= {each for each in owned if each[0] == fact[0]}
        owned.add(fact)

    def _withdraw(self, owner: str, owned: set[Fact]) -> None:
        key = self.choose.randrange(2)
        self.program.append((owner, "withdraw", key))
        self._command("retract", f"{self.label}({key}, _)", owner=owner)
        owned -= {each for each in owned if each[0] == key}

    def _shell(self, owner: str, owned: set[Fact]) -> None:
        fact = self._fact()
        verb = self.choose.choice(["assert", "retract"])
        if owner.startswith("lease"):  # a command has no facts under the lease of another client
            verb = "retract"
        self.program.append((owner, verb, fact))
        changes = (fact in owned) == (verb == "retract")
        code = self._command(verb, self._text(fact), owner=owner)
        assert owner.startswith("lease") or code == (0 if changes else 1)  # a lease may not have begun
        (owned.add if verb == "assert" else owned.discard)(fact)

    def _claim(self, owner: str, owned: set[Fact]) -> None:
        """A client of the same owner claims a fact under a handle of its own."""
        fact = self._fact()
        self.program.append((owner, "claim", fact))
        with ShortClient(self.daemon.url) as client:
            client.commit(
                [(ASSERT, (1 << 48) + self.choose.getrandbits(40), _value(self.label, fact))], owner
            )
        owned.add(fact)

    def _command(self, *words: str, owner: str) -> int:
        option = "--lease" if owner.startswith("lease") else "--durable"
        return main([*words, option, owner, "--url", self.daemon.url])

    def check(self) -> None:
        """Each owner claims what the model has, and an observer sees it."""
        found = self.daemon.get("/v1/spaces/main/facts", pattern=f"{self.label}($k, $v)").json()["rows"]
        assert {(each["k"], each["v"]) for each in found} == set().union(*self.owned.values()), self.program


def _value(label: str, fact: Fact) -> Any:
    return Record(label, *fact)


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[HttpDaemon]:
    daemon = HttpDaemon(tmp_path / "data")
    daemon.start()
    yield daemon
    assert daemon.stop() == 0


@pytest.mark.slow
def test_an_owner_has_one_claim_on_a_fact_whatever_door_states_it(own_daemon: HttpDaemon) -> None:
    spaces = [Space(own_daemon, f"fact{seed}", random.Random(seed)) for seed in range(PROGRAMS)]
    for at, space in enumerate(spaces):
        for _ in range(STEPS):
            space.step()
            space.check()
        if at == PROGRAMS // 2:
            own_daemon.stop()
            own_daemon.start()
            for each in spaces[: at + 1]:
                each.check()
                each.step()
                each.check()
    for space in spaces:  # nothing is left that a retraction does not end
        for owner, owned in space.owned.items():
            for k in range(2):
                for v in range(2):
                    own_daemon.turn({"retract": record(space.label, k, v)}, owner=owner).json()
            owned.clear()
        space.check()


@pytest.mark.parametrize("owner", OWNERS)
def test_a_fact_that_was_asserted_twice_ends_with_one_retraction(daemon: HttpDaemon, owner: str) -> None:
    fact = {"assert": record("twice", owner, 1)}
    first = daemon.turn(fact, owner=owner).json()
    assert daemon.turn(fact, fact, owner=owner).json() == first, "nothing has changed"
    with ShortClient(daemon.url) as client:
        held = client.request("owners", {"pattern": parse_pattern(f'twice("{owner}", 1)')})
        assert len(held) == 1  # type: ignore[arg-type]  # an array, by WIRE.md
    daemon.turn({"retract": record("twice", owner, 1)}, owner=owner).json()
    assert daemon.get("/v1/spaces/main/facts", pattern=f'twice("{owner}", $n)').json()["rows"] == []
