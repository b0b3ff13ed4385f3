"""Each entry of each table of the product is accepted once, and refused once, by a real daemon or a kernel in
this process: verbs, arguments, verbs with features of a hello, packets, routes, commands, constructs of
rules.

What no run can meet is listed in the call that makes the table, with the reason.
"""

from __future__ import annotations

import io
import itertools
import os
import pty
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from dataspace.client.bulk.short import ShortClient
from dataspace.kernel.derivation import RULES
from dataspace.kernel.space import Space
from dataspace.wire import packets as p
from dataspace.wire.features import WANTED
from dataspace.wire.packets import TABLE
from dataspace.wire.session import TRANSITIONS, Role
from dataspace.wire.verbs import MEMBER, VERBS
from index.values.values import Record, Value
from server.cli.main import main
from tests import warm
from tests.generated import constructs
from tests.generated.command_lines import ELSEWHERE, LINES
from tests.generated.kernel import Endless, KernelRun
from tests.generated.programs import Operation, Pass, Toggle, Turn, draw
from tests.generated.tables import ACCEPTED, REFUSED, Table
from tests.generated.talking import Talk, heard_by, is_refused_by_client, is_refused_by_daemon
from tests.generated.test_verbs import (
    NOT_HERE,
    OF_CLUSTERS,
    SECRET,
    Guest,
    Stated,
    World,
    base,
    cells,
    is_any,
    ordered,
    world,
)
from tests.model.space import ASSERT
from tests.routes import ROUTES
from tests.server.cli.test_command import Running
from tests.server.cli.test_table import CARRIED_OUT, complete
from tests.server.cli.test_watch import read_until
from tests.server.processes import DaemonProcess
from tests.server.web.routes.callers import HttpDaemon, record
from tests.server.web.routes.test_every_route import path_of

pytestmark = pytest.mark.slow

DRAWN: Final = range(44)
"""Programs of the kernel's door whose rules are met beside those that are written out."""


def judge(capsys: pytest.CaptureFixture[str], *tables: Table) -> None:
    """Prints the figures of tables; fails with what is wrong with them."""
    with capsys.disabled():
        print("", *tables, sep="\n")
    if wrong := [each for table in tables for each in table.wrong]:
        pytest.fail("\n".join(wrong), pytrace=False)


def test_a_table_says_what_was_never_met_and_which_reason_is_stale() -> None:
    table = Table("things", ["a", "b", "c"], unaccepted={"b": "why"}, unrefused={"gone": "why"})
    for entry in ("a", "b"):
        table.note(entry, ACCEPTED)
    table.note("c", REFUSED)
    assert table.wrong == [
        *("things: never accepted: c", "things: accepted after all: b, listed as: why"),
        *("things: never refused: a", "things: never refused: b", "things: listed, and no entry: gone"),
    ]


# -- constructs of rules -----------------------------------------------------------------------------


def test_constructs_of_rules(capsys: pytest.CaptureFixture[str]) -> None:
    unwritten = constructs.UNWRITTEN
    table = Table("constructs", constructs.entries(), unaccepted=unwritten, unrefused=unwritten)
    first = Turn("s:1", tuple([(ASSERT, at, fact) for at, fact in enumerate(constructs.FACTS)]))
    for text in constructs.SPOKEN:
        _carry_out(table, [first, Toggle("r", text), Pass(60)])
    for seed in DRAWN:
        _carry_out(table, draw(seed))
    for entry in table.entries:
        if entry not in unwritten and _is_refused(constructs.misused(entry)):
            table.note(entry, REFUSED)
    judge(capsys, table)


def _carry_out(table: Table, program: list[Operation] | tuple[Operation, ...]) -> None:
    """Carries out a program beside the model; notes the constructs of each text from which something
    follows."""
    run, texts = KernelRun(), set[str]()
    for operation in program:
        if isinstance(operation, Toggle):
            texts ^= {operation.text}
        seen = len(run.past)
        try:
            run.carry_out(operation)
        except Endless:
            return
        shown = [each for epoch in run.past[seen:] for each in epoch.messages]
        shown += run.space.claims(RULES).values()
        labels = {each.label for each in shown if isinstance(each, Record)}
        for text in texts:
            if labels & constructs.heads(text):
                for entry in constructs.constructs(text):
                    table.note(entry, ACCEPTED)


def _is_refused(text: str) -> bool:
    space = Space("s")
    space.commit("s:1", ((ASSERT, 1, Record("rule", "r", text)),), 1)
    return any(isinstance(each, Record) and each.label == "rule-error" for each in space.index.values())


# -- verbs -------------------------------------------------------------------------------------------


async def test_verbs_and_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("zstandard", reason="the extra `archive` is not installed")
    both = [(row.name, name) for row in VERBS.values() for name in row.arguments]
    verbs = Table("verbs", VERBS, unaccepted=OF_CLUSTERS)
    arguments = Table(
        "arguments",
        [f"{verb} {name}" for verb, name in both],
        unaccepted={f"{verb} {name}": OF_CLUSTERS[verb] for verb, name in both if verb in OF_CLUSTERS},
        unrefused={f"{verb} {name}": "takes any value" for verb, name in both if is_any(verb, name)},
    )
    async with world(tmp_path) as there:
        trusted = await Guest.arrive(there.made, "~follower", trusted=True)
        for row in ordered():
            asker = trusted if MEMBER in row.rights else there.owner
            for name, stated, is_right in cells(row):
                outcome = ACCEPTED if is_right else REFUSED
                table, entry = (
                    (arguments, f"{row.name} {name}") if name in row.arguments else (verbs, row.name)
                )
                if not table.lacks(entry, outcome):
                    continue
                known = await there.prepare(row.name, name)
                request = stated | {
                    at: made for at, made in known.items() if at != name or (is_right and at not in stated)
                }
                heard = await asker.ask(row.name, request)
                if isinstance(heard, p.Answer):
                    _note_accepted(verbs, arguments, row.name, request)
                elif not is_right and (name in heard.text or not name):
                    table.note(entry, REFUSED)
    for name, request in await trio.to_thread.run_sync(_of_archive, tmp_path / "archived"):
        _note_accepted(verbs, arguments, name, request)
    judge(capsys, verbs, arguments)


def _note_accepted(verbs: Table, arguments: Table, verb: str, request: Stated) -> None:
    verbs.note(verb, ACCEPTED)
    for at in request:
        arguments.note(f"{verb} {at}", ACCEPTED)


def _of_archive(folder: Path) -> list[tuple[str, Stated]]:
    """Returns requests that only a daemon with an archive accepts, once one has."""
    daemon = DaemonProcess(folder / "data", "--archive", str(folder / "archive"))
    daemon.start()
    try:
        with ShortClient(daemon.url) as client:
            asked = [(name, base(VERBS[name]) | {"wait": 0}) for name in NOT_HERE if name not in OF_CLUSTERS]
            for name, request in asked:
                client.request(name, request)
            return asked
    finally:
        assert daemon.stop() == 0


FEATURES: Final[dict[str, Value]] = {
    "attempt": (1, b"process"),
    "grace": 60_000,
    "heartbeat": 600_000,
    "here": True,
    "leader": True,
    "read": True,
    "resume": (),
    "space": "two",
    "spoken": True,
    "token": SECRET,
    "topics": True,
}
"""A value of each feature that a hello may name; ``resume`` is made."""


async def test_verbs_with_each_feature_of_a_hello(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(
        "verbs with features of a hello",
        [f"{verb} with {feature}" for verb in VERBS for feature in sorted(WANTED)],
        unaccepted={
            f"{verb} with {feature}": why
            for verb, why in {"erase": "needs an archive", **OF_CLUSTERS}.items()
            for feature in sorted(WANTED)
        },
    )
    async with world(tmp_path, "two") as there:
        guests = {
            (feature, trusted): await _arrive(there, feature, value, trusted=trusted)
            for feature, value in FEATURES.items()
            for trusted in (False, True)
        }
        for row, feature in itertools.product(ordered(), FEATURES):
            asker, entry = guests[feature, MEMBER in row.rights], f"{row.name} with {feature}"
            request = base(row) | await there.prepare(row.name)
            match row.name:
                case "end-topic":  # its own
                    request["topic"] = feature
                    await asker.has("join", {"topic": feature, "durable": True})
                case "drain":  # which ends none of the others meanwhile
                    request["within"] = 600_000
            if isinstance(await asker.ask(row.name, request), p.Answer):
                table.note(entry, ACCEPTED)
            if isinstance(await asker.ask(row.name, {**base(row), "nonsense": 1}), p.Denied):
                table.note(entry, REFUSED)
    judge(capsys, table)


async def _arrive(there: World, feature: str, value: Value, *, trusted: bool) -> Guest:
    """Returns a connection whose hello names a feature; in another space it asserts a fact first."""
    client = f"~{feature}-{trusted}"
    if feature != "resume":
        asked: dict[str, Any] = {"token": SECRET, feature: value}
        guest = await Guest.arrive(there.made, client, trusted=trusted, **asked)
    else:
        first = await Guest.arrive(there.made, client, token=SECRET, trusted=trusted, grace=60_000)
        first.wire.link.close()
        ticket = first.session, first.granted["secret"]
        guest = await Guest.arrive(there.made, client, token=SECRET, trusted=trusted, resume=ticket)
    if feature == "space":
        await guest.wire.say(p.Turn(1, str(value), "", ((ASSERT, 1, Record("job", 0)),)))
        assert isinstance(await guest.wire.hear(), p.Accepted)
    return guest


# -- packets -----------------------------------------------------------------------------------------


UNHEARD: Final = {"client hears Peek": "a daemon asks for values of an offer, and peeks at none"}
SHORT: Final = 2_000
"""Milliseconds after which a daemon says that it is there."""


async def test_packets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = {
        role: {kind for kinds in states.values() for kind in kinds} for role, states in TRANSITIONS.items()
    }
    entries = [
        heard_by(role, kind) for role, kinds in heard.items() for kind, _ in TABLE.values() if kind in kinds
    ]
    table = Table("packets", entries, unaccepted=UNHEARD)
    assert {kind for kind, _ in TABLE.values()} == set.union(*heard.values())
    async with world(tmp_path) as there:
        quiet = Talk(there.made.connect(trusted=False), table)
        await quiet.greet("~quiet", heartbeat=SHORT)
        await Talk(there.made.connect(trusted=False), table).all_kinds()
        for kind, _ in TABLE.values():
            if kind in heard[Role.SERVER] and await is_refused_by_daemon(there, kind):
                table.note(heard_by(Role.SERVER, kind), REFUSED)
            if kind in heard[Role.CLIENT] and is_refused_by_client(kind):
                table.note(heard_by(Role.CLIENT, kind), REFUSED)
        await quiet.hear(p.Ping)
    judge(capsys, table)


# -- routes and commands -----------------------------------------------------------------------------


BODIES: Final[dict[str, object]] = {
    "turns": {"owner": "tests", "actions": [{"send": "said"}]},
    "messages": {"messages": ["said"]},
    "take": {"pattern": "any($n)", "wait": 0},
    "any": {"items": [1]},
}
"""What routes take as their bodies, by the last word of the path; ``done`` and ``again`` name a job."""


LARGE: Final = "bad($x, $y, $z) <- cause($x), cause($y), cause($z)."
"""A rule that is suspended, and resumes when it is asked to once the command ``retract`` has been."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    process = HttpDaemon(tmp_path_factory.mktemp("tables") / "data")
    process.environment["DATASPACE_SERVE_LIMITS_DERIVED_PER_TURN"] = "500"
    process.start()
    process.put(Record("any", 1), Record("rule", "why", "due($n) <- any($n)."))
    process.put(*[Record("cause", at) for at in range(10)], Record("rule", "bad", LARGE), owner="me")
    process.call("POST", "/v1/topics/any", {"items": [1]}).json()
    yield process
    process.stop()


def test_routes(daemon: HttpDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [(row, method) for row in ROUTES for method in row.methods]
    table = Table("routes", [f"{method} {row.path}" for row, method in asked])
    for row, method in asked:
        path, entry = path_of(row.path), f"{method} {row.path}"
        body = _body(daemon, path.partition("?")[0].rpartition("/")[2]) if row.body is not None else None
        answer = daemon.call(method, path, body)
        if 200 <= answer.status < 300:
            table.note(entry, ACCEPTED)
        refused = daemon.call(method, f"{path}{'&' if '?' in path else '?'}nonsense=1", body)
        if refused.status == 400:
            table.note(entry, REFUSED)
    judge(capsys, table)


def _body(daemon: HttpDaemon, word: str) -> object:
    if word in BODIES:
        return BODIES[word]
    daemon.call("POST", "/v1/spaces/main/messages", {"messages": [record("any", 2)]})
    taken = daemon.call("POST", "/v1/spaces/main/groups/any/take", {"wait": 20}).json()
    return {"deliveries": [each["delivery"] for each in taken["jobs"]]}


def _entries() -> list[str]:
    """Returns the rows that are carried out, each with each of its verbs where these are words of it."""
    found = []
    for row in CARRIED_OUT:
        verbs = [each.choices for each in row.arguments if each.names == ("verb",)]
        found += [f"{row.name} {verb}" for verb in verbs[0]] if verbs else [row.name]
    return found


def test_commands(
    daemon: HttpDaemon, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")
    pytest.importorskip("rich", reason="the extra `terminal` is not installed")
    table = Table("commands", _entries(), unaccepted=ELSEWHERE)
    for entry in table.entries:
        if _is_refused_by_command(entry, capfd):
            table.note(entry, REFUSED)
    monkeypatch.setenv("DATASPACE_URL", daemon.url)
    (tmp_path / "rules").write_text("p($n) <- q($n).\n---\nassert q(1)\nexpect p(1)\n")
    if _watch(daemon.url) == 0:
        table.note("watch", ACCEPTED)
    with Running(daemon.url, "assert", "held(1)") as victim:
        victim.error_line()
        sessions = daemon.get("/v1/spaces/system/facts", pattern="session($id, _)").json()["rows"]
        first = min([each["id"] for each in sessions], key=lambda name: int(name.partition(".")[2]))
        said = {
            "SESSION": first,
            "DATA": str(daemon.data),
            "ARCHIVE": str(tmp_path / "archive"),
            "PLACE": str(tmp_path),
        }
        for entry, line in LINES.items():
            for name, place in said.items():
                line = line.replace(name, place)
            monkeypatch.setattr("sys.stdin", io.StringIO("status\n"))
            code = main([*entry.split(), *shlex.split(line)])
            if code == 0:
                table.note(entry, ACCEPTED)
    judge(capfd, table)


def _watch(url: str) -> int:
    """Returns the exit code of ``watch`` on a terminal, once it shows something and is interrupted."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "dataspace", "watch", "any($n)", "--url", url]
    with warm.Popen(command, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}) as shown:
        os.close(slave)
        read_until(master, " row")
        shown.send_signal(signal.SIGINT)
        read_until(master, "\x1b[?1049l")
    os.close(master)
    return shown.returncode


def _is_refused_by_command(entry: str, capfd: pytest.CaptureFixture[str]) -> bool:
    """True if the parser of a row refuses an option that it does not have."""
    row = next(
        each
        for each in CARRIED_OUT
        if entry.startswith(each.name) and each.name.split() == entry.split()[: len(each.name.split())]
    )
    words = [*entry.split(), *complete(row)[len(entry.split()) - len(row.name.split()) :]]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--nonsense=1"])
    said = capfd.readouterr().err
    return ended.value.code == 2 and said.startswith(
        f"dataspace {row.name}: unrecognized arguments: --nonsense"
    )
