"""A daemon carries out rules that call functions of its configuration, and starts without them as well."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.server.cli.test_command import run
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

MODULE = '''
def distance(a, b):
    """Of two points."""
    if a == b == [0, 0] or a == (9, 9):
        raise LookupError("no such place")
    return sum(abs(x - y) for x, y in zip(a, b))
'''

FUNCTIONS = """
[[functions]]
run = "plant.geo:distance"
takes = ["seq", "seq"]
gives = "number"
"""

NEAR = "near($a, $b, geo.distance($p, $q)) <- at($a, $p), at($b, $q), $a < $b, geo.distance($p, $q) < 5."
PLAIN = "placed($a) <- at($a, _)."


@pytest.fixture
def daemon(tmp_path: Path) -> DaemonProcess:
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "geo.py").write_text(MODULE, encoding="utf-8")
    configure(tmp_path, FUNCTIONS)
    made = DaemonProcess(tmp_path / "data", "--config", str(tmp_path / "daemon.toml"))
    made.environment = {"PYTHONPATH": str(tmp_path)}
    return made


def configure(folder: Path, text: str) -> None:
    (folder / "daemon.toml").write_text(text, encoding="utf-8")


def facts(url: str, pattern: str) -> list[str]:
    done = run(url, "query", pattern, "--csv")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


def test_a_function_of_a_module_beside_it(daemon: DaemonProcess, tmp_path: Path) -> None:
    daemon.start()
    url = daemon.url
    assert run(url, "rule", "add", "near", NEAR, "--durable", "map").returncode == 0
    assert run(url, "rule", "add", "plain", PLAIN, "--durable", "map").returncode == 0
    run(url, "assert", "--durable", "map", 'at("a", [0, 1])', 'at("b", [1, 3])', 'at("c", [8, 8])')
    assert facts(url, "near($a, $b, $d)") == ["a,b,3"]
    why = run(url, "rule", "why", 'near("a", _, _)').stdout
    assert why.startswith('near("a", "b", 3)    by near(') and 'at("b", [1, 3])' in why

    done = run(url, "rule", "add", "far", NEAR.replace("geo.", "map."), "--durable", "map")
    assert done.returncode != 0
    assert (
        "far is not carried out: no function map.distance is registered here: did you mean geo.distance?"
        in done.stderr
    )
    done = run(url, "query", "at($a, $p), geo.distance($p, [0, 0]) < 3")
    assert done.returncode != 0 and "geo.distance is a function of the daemon" in done.stderr

    run(url, "assert", "--durable", "map", 'at("x", [9, 9])', 'at("y", [9, 8])')
    listed = run(url, "rule", "list").stdout
    assert "suspended: UsageError: geo.distance raised LookupError: no such place" in listed
    assert facts(url, "near($a, $b, $d)") == [] and len(facts(url, "placed($a)")) == 5
    run(url, "retract", "--durable", "map", 'at("x", [9, 9])')
    assert facts(url, "near($a, $b, $d)") == ["a,b,3", "c,y,1"]

    configure(tmp_path, "")
    assert daemon.stop() == 0
    daemon.start()
    assert facts(url, "near($a, $b, $d)") == [] and len(facts(url, "placed($a)")) == 4
    listed = run(url, "rule", "list").stdout
    assert "suspended: no function geo.distance is registered here: [[functions]] in the config" in listed
    assert listed.count("suspended") == 1

    configure(tmp_path, FUNCTIONS)
    assert daemon.stop() == 0
    assert "no function geo.distance is registered here" in daemon.errors
    daemon.start()
    assert facts(url, "near($a, $b, $d)") == ["a,b,3", "c,y,1"]
    assert "suspended" not in run(url, "rule", "list").stdout

    more = (
        FUNCTIONS.replace("distance", "other") + '[[rules]]\nname = "o"\ntext = "o(geo.other(1)) <- p(1)."\n'
    )
    configure(tmp_path, more)
    daemon.process.send_signal(signal.SIGHUP)
    given, told = monotonic() + 20, ""
    while "SIGHUP" not in told and monotonic() < given:
        sleep(0.02)
        daemon._said.seek(0)
        told = daemon._said.read()
    assert "o: no function geo.other is registered here: did you mean" in told or "registered are" in told
    assert re.search(r"these have changed and need a restart: .*functions", told)
    assert facts(url, "near($a, $b, $d)") == ["a,b,3", "c,y,1"]
    assert daemon.stop() == 0


def test_a_function_that_is_not_there_ends_the_start(daemon: DaemonProcess, tmp_path: Path) -> None:
    configure(tmp_path, FUNCTIONS.replace("distance", "distnce"))
    with pytest.raises(AssertionError, match=r"module plant\.geo has no function 'distnce'"):
        daemon.start()
