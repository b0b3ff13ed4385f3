"""What the operator sees of attacks: addresses, without a flood of equal lines, and warnings at the start."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dataspace.wire import packets as p
from index.values.values import Map
from tests.abuse.lines import Line
from tests.abuse.stage import Stage
from tests.abuse.tenants import ADMIN, INNOCENTS, configuration
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

LINES = 60
"""Lines that the daemon may log of some thousand equal events."""

TOKENS = configuration(INNOCENTS.values())


def _logged(tmp_path: Path, settings: str, *options: str, mode: int = 0o600) -> str:
    """Returns what a daemon logs that starts and stops."""
    config = tmp_path / "config.toml"
    config.write_text(settings)
    config.chmod(mode)
    daemon = DaemonProcess(tmp_path / "data", "--config", str(config), *options)
    daemon.start()
    assert daemon.stop() == 0, daemon.errors
    return daemon.errors


def test_tokens_that_are_tried_are_logged_with_the_address_and_not_each(tmp_path: Path) -> None:
    with Stage(tmp_path, settings=TOKENS, token=INNOCENTS[ADMIN].token) as stage:
        for number in range(6):  # each is answered later than the one before
            with Line(stage.port, stage.oracle, "stranger") as line:
                line.say(p.Hello(1, f"~{number}", "stranger", Map({"token": f"a-guess-of-many-{number}"})))
                assert line.expect(p.Bye).code == "unauthorized"
            stage.trip()
    said = stage.daemon.errors
    about = [line for line in said.splitlines() if "127.0.0.1" in line and "token" in line]
    assert about, f"no line names the address: {said[:2000]}"
    assert len(said.splitlines()) < LINES
    assert "a-guess-of-many" not in said


def test_warnings_are_throttled(tmp_path: Path) -> None:
    with Stage(tmp_path, settings="[limits]\nconnections = 8\n") as stage:
        lines = [Line(stage.port, stage.oracle, "silent") for _ in range(7)]
        for _ in range(2_000):
            with Line(stage.port, stage.oracle, "refused") as line:
                line.finish()
        for each in lines:
            each.close()
    said = stage.daemon.errors.splitlines()
    assert 0 < len(said) < LINES, said[:3]


WARNINGS = {
    "without tokens beyond this machine": ("", ("--listen", "tcp:0.0.0.0:0"), 0o600, "token"),
    "with tokens and without TLS": (TOKENS, ("--listen", "tcp:0.0.0.0:0"), 0o600, "TLS"),
    "secrets that others can read": (TOKENS, (), 0o644, "read"),
}


@pytest.mark.parametrize("case", sorted(WARNINGS))
def test_the_daemon_warns_at_the_start(tmp_path: Path, case: str) -> None:
    settings, options, mode, word = WARNINGS[case]
    assert word in _logged(tmp_path, settings, *options, mode=mode)


def test_a_daemon_that_is_set_up_well_warns_of_nothing(tmp_path: Path) -> None:
    said = [line for line in _logged(tmp_path, TOKENS).splitlines() if "SIGTERM" not in line]
    assert said == []


def test_what_the_daemon_writes_is_for_its_user_alone(tmp_path: Path) -> None:
    _logged(tmp_path, "[spaces.annex]\n")
    data = tmp_path / "data"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}
    assert modes[data] == 0o700
    assert {oct(mode) for path, mode in modes.items() if path.is_file()} == {"0o600"}
