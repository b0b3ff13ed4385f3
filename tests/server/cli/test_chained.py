"""What one command shows, another takes: each name, in each form in which it is printed.

A name is cut out of what a command prints as a reader would: a column, a field of JSON.  JSON shows facts for
other programs, so facts are taken from text alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, NamedTuple

import pytest

from dataspace import ProtocolError, Record, connect_blocking
from dataspace.client.bulk.short import ShortClient
from dataspace.kernel.actions import ASSERT
from index.patterns.text import unparse
from server.cli.main import main
from tests.server.processes import DaemonProcess

ODD: Final = 'two words, "quoted" $é'
NUMBERS: Final = count(1)

Cut = Callable[[str], str]


class Shown(NamedTuple):
    """A command, and how a name is cut out of a line that it prints."""

    command: str
    cut: Cut


def column(at: int) -> Cut:
    """Cuts out a column of a table."""
    return lambda line: re.split(r"  +", line.strip())[at]


def field(name: str) -> Cut:
    """Cuts out a field of JSON."""
    return lambda line: str(json.loads(line)[name])


def of_who(line: str) -> str:
    """Cuts the owner out of a line of ``log --who``."""
    return re.split(r"  +", line.partition("  owner=")[2])[0]


def first_word(line: str) -> str:
    """Cuts out the first word."""
    return line.split()[0]


def stamp(line: str) -> str:
    """Cuts the epoch out of a line such as ``2 facts at epoch 7``."""
    before, _, number = line.rpartition(" epoch ")
    return number if before else ""


OWNERS: Final = (
    Shown("owners FACT", column(1)),
    Shown("owners FACT --json", field("owner")),
    Shown("log FACT --who", of_who),
)
SESSIONS: Final = (
    Shown("sessions", first_word),
    Shown("sessions --json", field("session")),
    Shown("owners mine(N)", column(1)),
    Shown("owners mine(N) --json", field("owner")),
    Shown("owners Observe(job(N,_))", column(1)),
    Shown("log mine(N) --who", of_who),
    Shown("groups out GROUP", column(2)),
    Shown("groups out GROUP --json", field("member")),
)
EPOCHS: Final = (
    Shown("get mine(N)", stamp),
    Shown("get FACT --json", field("epoch")),
    Shown("query job(N,$x) --json", field("epoch")),
    Shown("log FACT", first_word),
    Shown("log FACT --json", field("epoch")),
    Shown("observe FACT --count 1", first_word),
    Shown("observe FACT --count 1 --json", field("epoch")),
    Shown("assert other(N) --durable x", stamp),
)
TIMES: Final = (
    Shown("log FACT --json", field("time")),
    Shown("observe FACT --count 1 --json", field("time")),
)


class Chain(NamedTuple):
    """The commands that show a kind of name, and those that take one: what ends the thing comes last."""

    shown: tuple[Shown, ...]
    taken: tuple[str, ...]


CHAINS: Final[dict[str, Chain]] = {
    "fact": Chain(
        (
            Shown("get job(N,_)", str),
            Shown("log $", lambda line: line.partition(" + ")[2] if " + job(" in line else ""),
            Shown("owners job(N,_)", column(0)),
            Shown("rule why job(N,_)", column(0)),
            Shown("groups out GROUP", column(4)),
        ),
        (
            "get NAME",
            "owners NAME",
            "log NAME",
            "observe NAME --count 1",
            "assert NAME --durable x",
            "put NAME --durable x",
            "send NAME --expect NAME",
            "rule why NAME",
            "retract NAME --durable OWNER",
        ),
    ),
    "owner": Chain(
        OWNERS,
        (
            "rule remove RULE --durable NAME",
            "put FACT --durable NAME",
            "retract FACT --durable NAME",
            "assert FACT --durable NAME",
            "retract job(N,_) --durable NAME",
        ),
    ),
    "lease": Chain(
        (
            Shown("owners leased(N)", column(1)),
            Shown("owners leased(N) --json", field("owner")),
            Shown("log leased(N) --who", of_who),
        ),
        ("retract leased(N) --lease NAME",),
    ),
    "session": Chain(SESSIONS, ("sessions end NAME",)),
    "group": Chain(
        (Shown("groups", column(0)), Shown("groups --json", field("group"))),
        (
            "groups list NAME",
            "groups out NAME",
            "groups pause NAME",
            "groups resume NAME",
            "groups alter NAME --attempts 3",
            "groups retry NAME",
            "groups seek NAME now",
            "groups delete NAME",
        ),
    ),
    "topic": Chain(
        (
            Shown("topic list", lambda line: line.partition(" 1 partition,")[0]),
            Shown("topic list --json", field("topic")),
        ),
        ("topic subscribe NAME --until 0", "topic read NAME", "topic end NAME"),
    ),
    "rule": Chain(
        (
            Shown("rule list", lambda line: line.strip().removesuffix(":")),
            Shown("rule list --json", field("name")),
        ),
        ("rule remove NAME --durable OWNER",),
    ),
    "epoch": Chain(
        EPOCHS,
        (
            "get FACT --as-of NAME",
            "query job(N,$x) --as-of NAME",
            "log FACT --from NAME --until NAME",
            "observe FACT --from NAME --until NAME",
            "assert more(N) --durable x --unchanged-since NAME",
            "groups seek GROUP NAME",
        ),
    ),
    "time": Chain(
        TIMES,
        (
            "get FACT --as-of NAME",
            "log FACT --since NAME",
            "groups seek GROUP NAME",
        ),
    ),
}


class World:
    """Things with one number, which no other test has, of a client that is connected."""

    def __init__(self, url: str, number: int) -> None:
        self.url = url
        self.number = number
        self.odd = f"{ODD} {number}."
        self.fact = Record("job", number, self.odd)
        self.words = {"FACT": unparse(self.fact), **dict.fromkeys(["OWNER", "GROUP", "RULE"], self.odd)}

    def run(self, command: str, capfd: pytest.CaptureFixture[str], name: str = "") -> tuple[int, list[str]]:
        """Runs a command in which words stand for these things; returns its code and the lines it prints."""
        words = [self._word(word, name) for word in command.split()]
        capfd.readouterr()
        try:
            code = main([*words, "--url", self.url])
        except SystemExit as end:  # of the command line itself
            code = int(end.code or 0)
        return code, "".join(capfd.readouterr()).splitlines()

    def _word(self, word: str, name: str) -> str:
        known = {**self.words, "NAME": name}
        return known.get(word) or word.replace("(N", f"({self.number}")

    def name_in(self, lines: list[str], cut: Cut) -> str:
        """Returns the name in the last line that has one: of those about these things, if any is."""
        about = [each for each in lines if f"é {self.number}." in each]
        return [name for each in about or lines if (name := cut(each))][-1]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(tmp_path_factory.mktemp("chained") / "data")
    daemon.start()
    yield daemon
    daemon.stop()


@contextmanager
def made(url: str) -> Iterator[World]:
    """Makes things of all kinds, by clients of which one stays connected."""
    world = World(url, next(NUMBERS))
    number, odd = world.number, world.odd
    rule = Record("rule", odd, f"found({number}, $x) <- job({number}, $x), counted({number}).")
    with ShortClient(url, name="before") as client:
        client.commit([(ASSERT, 2 * number, world.fact), (ASSERT, 2 * number + 1, rule)], odd)
        client.request("lease", {"owner": f"lease:60000:{odd}"})
        client.commit([(ASSERT, 1, Record("leased", number))], f"lease:60000:{odd}")
    with suppress(ProtocolError), connect_blocking(url, name=odd) as space:  # which a command may end
        with space.publish(odd, durable=True, name="n") as publication:
            publication.send(odd)
        space.assert_(Record("mine", number))
        with space.consume(f"job({number}, $x)", group=odd, start="held") as jobs:
            next(iter(jobs))
            yield world


def shown_in(world: World, kind: str, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Returns the names of a kind, each with a command that shows it."""
    names: dict[str, str] = {}
    for command, cut in CHAINS[kind].shown:
        code, lines = world.run(command, capfd)
        assert code == 0, (command, lines)
        names.setdefault(world.name_in(lines, cut), command)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHAINS)
def test_a_name_that_is_shown_is_taken(
    daemon: DaemonProcess, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    with made(daemon.url) as world:
        forms = len(shown_in(world, kind, capfd))
    for at in range(forms):
        with made(daemon.url) as world:
            name, by = [*shown_in(world, kind, capfd).items()][at]
            for command in CHAINS[kind].taken:
                code, lines = world.run(command, capfd, name)
                assert code == 0, f"{name} of {by} is not taken by {command}: {lines}"
                assert not [each for each in lines if re.search(r"\b0 facts|nothing", each)], (by, command)
            _, owners = world.run("owners _ --json", capfd)
            assert {json.loads(each)["owner"] for each in owners if f"é {world.number}." in each} <= {
                "group:" + world.odd,
                "rules",
                *[f"durable:{each}" for each in (world.odd, "x")],
                f"lease:60000:{world.odd}",
            }
