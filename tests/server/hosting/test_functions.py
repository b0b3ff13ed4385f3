"""A daemon carries out rules that call functions of its configuration, and starts without them as well."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from time import monotonic, sleep

import pytest

from dataspace import Record, connect_blocking
from dataspace.errors import Refused
from index.values.values import Value
from tests.server.cli.test_command import run
from tests.server.processes import DaemonProcess, stand_by

pytestmark = pytest.mark.slow

MODULE = '''
def distance(a, b):
    """Of two points."""
    if (9, 9) in (a, b):
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


def hold(url: str, *facts: Record) -> None:
    with connect_blocking(url, owner="durable:map") as space:
        for fact in facts:
            space.assert_(fact)


def rule(name: str, text: str) -> Record:
    return Record("rule", name, text)


def at(name: str, *place: int) -> Record:
    return Record("at", name, place)


def derived(url: str) -> tuple[list[tuple[Value, ...]], int, list[str]]:
    """What is near, how many are placed, and why rules are suspended."""
    with connect_blocking(url, wait=30) as space:
        near = sorted(space.matches("near($a, $b, $d)"), key=repr)
        errors = [str(why) for (why,) in space.matches("rule-error(_, _, _, $why)")]
        return near, len(space.matches("placed($a)")), errors


def test_a_function_of_a_module_beside_it(daemon: DaemonProcess, tmp_path: Path) -> None:
    daemon.start()
    url = daemon.url
    assert run(url, "rule", "add", "near", NEAR, "--durable", "shell").returncode == 0
    hold(url, rule("plain", PLAIN), at("a", 0, 1), at("b", 1, 3), at("c", 8, 8))
    assert derived(url) == ([("a", "b", 3)], 3, [])
    why = run(url, "rule", "why", 'near("a", _, _)').stdout
    assert why.startswith('near("a", "b", 3)    by near(') and 'at("b", [1, 3])' in why

    done = run(url, "rule", "add", "far", NEAR.replace("geo.", "map."), "--durable", "shell")
    said = "far is not carried out: no function map.distance is registered here: did you mean geo.distance?"
    assert done.returncode != 0 and said in done.stderr
    done = run(url, "query", "at($a, $p), geo.distance($p, [0, 0]) < 3")
    assert done.returncode != 0 and "geo.distance is a function of the daemon's rules" in done.stderr

    with connect_blocking(url) as space:
        broken = space.assert_(at("x", 9, 9))
        near, placed, (error,) = derived(url)
        assert (near, placed) == ([], 4)
        assert error.startswith("CallFailed: geo.distance raised LookupError: no such place (in near(")
        space.retract(broken)
        assert derived(url) == ([("a", "b", 3)], 3, [])

    configure(tmp_path, "")
    assert daemon.stop() == 0
    daemon.start()
    near, placed, (error,) = derived(url)
    assert (near, placed) == ([], 3)
    assert error.startswith("no function geo.distance is registered here: [[functions]] in the configuration")
    listed = run(url, "rule", "list").stdout
    assert listed.count("suspended: no function geo.distance is registered here") == 1

    configure(tmp_path, FUNCTIONS)
    assert daemon.stop() == 0
    assert "rule near is not carried out: no function geo.distance is registered here" in daemon.errors
    daemon.start()
    assert derived(url) == ([("a", "b", 3)], 3, [])
    assert daemon.stop() == 0


def test_a_reload_names_them_and_takes_no_rules_that_need_them(daemon: DaemonProcess, tmp_path: Path) -> None:
    daemon.start()
    hold(daemon.url, rule("near", NEAR), at("a", 0, 1), at("b", 1, 3))
    more = FUNCTIONS + FUNCTIONS.replace("gives", 'name = "geo.other"\ngives')
    configure(tmp_path, more + '[[rules]]\nname = "o"\ntext = "o(geo.other($x, $x)) <- p($x)."\n')
    daemon.process.send_signal(signal.SIGHUP)
    given, told = monotonic() + 60, ""
    while "SIGHUP, the configuration was reloaded" not in told:
        assert monotonic() < given, told
        sleep(0.02)
        told = Path(f"/proc/{daemon.process.pid}/fd/2").read_text(encoding="utf-8")
    assert "rule 'o': no function geo.other is registered here" in told
    assert re.search(r"these have changed and need a restart: .*functions", told)
    assert derived(daemon.url)[0] == [("a", "b", 3)]
    assert daemon.stop() == 0
    daemon.start()
    with connect_blocking(daemon.url) as space:
        space.assert_(Record("p", (2,)))
        assert space.matches("o($n)") == [(0,)]
    assert daemon.stop() == 0


def test_a_function_that_is_not_there_ends_the_start(daemon: DaemonProcess, tmp_path: Path) -> None:
    configure(tmp_path, FUNCTIONS.replace("distance", "distnce"))
    with pytest.raises(AssertionError, match=r"module plant\.geo has no function 'distnce'"):
        daemon.start()


def test_a_stand_by_without_it_leads_with_the_other_rules(daemon: DaemonProcess, tmp_path: Path) -> None:
    daemon.start()
    hold(daemon.url, rule("near", NEAR), rule("plain", PLAIN), at("a", 0, 1), at("b", 1, 3))
    (tmp_path / "bare.toml").write_text("", encoding="utf-8")
    other = stand_by(daemon.data)
    other.more = (*other.more, "--config", str(tmp_path / "bare.toml"))
    other.start()
    daemon.kill()
    with connect_blocking(other.url, wait=30) as space:
        while True:
            try:
                space.send(Record("probe", 1))
                break
            except (Refused, ConnectionError):
                sleep(0.05)
    near, placed, (error,) = derived(other.url)
    assert (near, placed) == ([], 2)
    assert error.startswith("no function geo.distance is registered here")
    assert other.stop() == 0
