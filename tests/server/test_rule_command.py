"""``dataspace rule`` adds, replaces and removes rules, and answers questions, as a user reads it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

REACH = "reach($x, $y) <- road($x, $y). reach($x, $z) <- reach($x, $y), road($y, $z)."


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("rules") / "data")
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def space(daemon: DaemonProcess) -> Iterator[BlockingSpace]:
    """Somebody with facts, and no rules of others."""
    with dataspace.connect_blocking(daemon.url) as connected:
        yield connected


def rule(daemon: DaemonProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "server", "rule", *words],
        env=os.environ | {"DATASPACE_URL": daemon.url},
        text=True,
        capture_output=True,
        timeout=60,
    )


@pytest.fixture
def roads(daemon: DaemonProcess, space: BlockingSpace) -> Iterator[BlockingSpace]:
    """Two roads, and a durable rule over them."""
    with space.turn() as turn:
        turn.assert_(Record("road", "a", "b"))
        turn.assert_(Record("road", "b", "c"))
    added = rule(daemon, "add", "reach", REACH, "--durable", "roads")
    assert (added.returncode, added.stdout, added.stderr) == (0, "", "added rule reach\n")
    yield space
    removed = rule(daemon, "remove", "reach", "--durable", "roads")
    assert (removed.returncode, removed.stderr) == (0, "removed rule reach\n")
    assert space.matches("reach($x, $y)") == []


def test_a_durable_rule_stays_is_listed_and_is_replaced_by_its_name(
    daemon: DaemonProcess, roads: BlockingSpace
) -> None:
    assert sorted(roads.matches("reach($x, $y)")) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert rule(daemon, "list").stdout == f"reach:\n    {REACH}\n"
    only = "reach($x, $y) <- road($x, $y)."
    with roads.observe("reach($x, $y)") as observation:
        changes = iter(observation)
        assert len([next(changes) for _ in range(3)]) == 3
        assert rule(daemon, "add", "reach", only, "--durable", "roads").returncode == 0
        gone = next(changes)
    assert (gone.kind, gone.captures) == ("-", ("a", "c")), "what both derive does not blink"
    assert rule(daemon, "list").stdout == f"reach:\n    {only}\n"


def test_a_rule_is_held_until_its_command_is_killed(daemon: DaemonProcess, roads: BlockingSpace) -> None:
    holding = subprocess.Popen(
        [sys.executable, "-m", "server", "rule", "add", "ends", "end($y) <- road(_, $y), not road($y, _)."],
        env=os.environ | {"DATASPACE_URL": daemon.url},
        text=True,
        stderr=subprocess.PIPE,
    )
    with holding, roads.observe("end($y)") as observation:
        ends = iter(observation)
        assert next(ends).captures == ("c",)
        holding.send_signal(signal.SIGKILL)
        gone = next(ends)
    assert (gone.kind, gone.captures) == ("-", ("c",))


def test_why_proves_and_why_not_says_what_lacks(daemon: DaemonProcess, roads: BlockingSpace) -> None:
    assert rule(daemon, "why", 'reach("a", "c")').stdout.splitlines() == [
        'reach("a", "c")    by reach($x, $z) <- reach($x, $y), road($y, $z).',
        '    reach("a", "b")    by reach($x, $y) <- road($x, $y).',
        '        road("a", "b")    claimed',
        '    road("b", "c")    claimed',
    ]
    assert rule(daemon, "why", 'road("a", "b")').stdout.strip() == 'road("a", "b")    claimed'
    assert "why-not" in rule(daemon, "why", 'reach("c", "a")').stdout
    assert rule(daemon, "why-not", 'reach("c", "a")').stdout.splitlines() == [
        "reach($x, $y) <- road($x, $y).",
        '    no match of road($x, $y)  with $x = "c", $y = "a"',
        "reach($x, $z) <- reach($x, $y), road($y, $z).",
        '    no match of reach($x, $y)  with $x = "c", $z = "a"',
    ]


def test_explain_graph_and_monotone_tell_of_every_rule(daemon: DaemonProcess, roads: BlockingSpace) -> None:
    explained = rule(daemon, "explain")
    assert explained.returncode == 0 and "reach" in explained.stdout and "stratum" in explained.stdout
    graph = rule(daemon, "graph").stdout
    assert graph.startswith("flowchart") and "subgraph" in graph and "road" in graph
    assert "reach" in rule(daemon, "monotone").stdout


def test_the_text_may_be_in_a_file(daemon: DaemonProcess, roads: BlockingSpace, tmp_path: Path) -> None:
    (tmp_path / "back.rules").write_text("back($y, $x) <- road($x, $y).\n", encoding="utf-8")
    assert rule(daemon, "add", "back", f"@{tmp_path}/back.rules", "--durable", "roads").returncode == 0
    assert sorted(roads.matches("back($x, $y)")) == [("b", "a"), ("c", "b")]
    assert rule(daemon, "remove", "back", "--durable", "roads").returncode == 0
    nowhere = rule(daemon, "add", "back", f"@{tmp_path}/none.rules")
    assert nowhere.returncode == 2 and "No such file" in nowhere.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "bad", "p($x) <- q($x"), "expected"),
        (("add", "bad", "p($x) <- q($y)."), "$x"),
        (("add", "bad", "p($x) <- q($x), not p($x).", "--durable", "roads"), "p"),
        (("remove", "none", "--durable", "roads"), "roads has added no rule none"),
        (("remove", "none"), "--durable"),
        (("why", "reach("), "expected"),
    ],
)
def test_what_is_wrong_is_said(daemon: DaemonProcess, words: tuple[str, ...], said: str) -> None:
    done = rule(daemon, *words)
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    rule(daemon, "remove", "bad", "--durable", "roads")


def test_a_rule_that_was_suspended_is_listed_with_the_reason(
    daemon: DaemonProcess, space: BlockingSpace
) -> None:
    text = "ratio($x, $a / $b) <- pair($x, $a, $b)."
    assert rule(daemon, "add", "ratio", text, "--durable", "sums").returncode == 0
    space.assert_(Record("pair", "x", 1, 0))
    listed = rule(daemon, "list").stdout
    assert listed.startswith(f"ratio:\n    {text}\n    suspended: ") and "division" in listed, listed
    assert rule(daemon, "remove", "ratio", "--durable", "sums").returncode == 0
