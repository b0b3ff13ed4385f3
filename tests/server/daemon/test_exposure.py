"""What is exposed is said at the start; what the daemon writes can be read by its user alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from server.config.model import Config, ServerTls
from server.config.rights import Key
from server.daemon.exposure import warnings
from tests.server.processes import DaemonProcess

KEYS = (Key("admin", "a secret of many characters"),)
TLS = ServerTls("daemon.pem")
MUTUAL = ServerTls("daemon.pem", client_ca="ca.pem")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(), []),
        (Config(listen=("tcp:127.0.0.9:1", "tcp:[::1]:1", "tcp:localhost:1", "unix:/run/d.sock")), []),
        (Config(listen=("tcp:0.0.0.0:1",)), ["tcp:0.0.0.0:1, beyond this machine, without tokens"]),
        (Config(listen=("tcp:[::]:1", "tcp:host:1")), ["tcp:[::]:1, beyond", "tcp:host:1, beyond"]),
        (Config(listen=("tls:0.0.0.0:1",), tls=TLS), ["tls:0.0.0.0:1, beyond this machine, without tokens"]),
        (Config(listen=("tls:0.0.0.0:1",), tls=MUTUAL), []),
        (Config(listen=("tcp:0.0.0.0:1",), keys=KEYS), ["without TLS", "listen on tls:0.0.0.0:1"]),
        (Config(listen=("tls:0.0.0.0:1",), keys=KEYS, tls=TLS), []),
    ],
)
def test_who_can_reach_the_daemon_is_said(config: Config, said: list[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    found = list(warnings(Config(listen=config.listen, data=tmp_path, keys=config.keys, tls=config.tls)))
    assert bool(found) == bool(said)
    assert all(any(each in line for line in found) for each in said), found


def _modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")
    }


async def _use(url: str) -> None:
    async with dataspace.connect(url) as space:
        await space.assert_(Record("p", 1))
        await space.stage(("a",), [("assert", Record("q", 1))])
        await space.sync()


@pytest.mark.slow
def test_a_new_data_directory_is_private(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "a" / "data", "--host-space", "other")
    daemon.start()
    trio.run(_use, daemon.url)
    assert stat.S_IMODE(daemon.data.stat().st_mode) == 0o700
    assert {"log.sqlite", "log.sqlite-wal", "lock", "staged.sqlite"} <= _modes(daemon.data).keys()
    modes = _modes(daemon.data)
    assert {name for name, mode in modes.items() if mode & 0o077} <= {"spaces"}
    assert daemon.stop() == 0
    assert daemon.errors == "dataspace: SIGTERM, stopping\n"


@pytest.mark.slow
def test_files_that_others_could_read_are_closed_to_them_and_a_directory_is_named(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    trio.run(_use, daemon.url)
    daemon.kill()  # so that SQLite's other files stay
    for path in (daemon.data, *daemon.data.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    daemon.start()
    trio.run(_use, daemon.url)
    assert set(_modes(daemon.data).values()) == {0o600}
    assert daemon.stop() == 0
    assert f"chmod 700 {daemon.data}" in daemon.errors


@pytest.mark.slow
def test_secrets_that_every_user_can_read_are_named(tmp_path: Path) -> None:
    config, secret = tmp_path / "serve.toml", tmp_path / "secret"
    secret.write_text("another secret of many characters")
    config.write_text(
        '[[tokens]]\nname = "a"\nsecret = "a secret of many characters"\n'
        '[[tokens]]\nname = "b"\nsecret_file = "secret"\n'
    )
    config.chmod(0o644)
    secret.chmod(0o640)
    daemon = DaemonProcess(tmp_path / "data", "--config", str(config))
    daemon.start()
    daemon.stop()
    assert f"{config} holds secrets, and every user can read it (mode 0644): chmod 600" in daemon.errors
    assert str(secret) not in daemon.errors
    config.chmod(0o600)
    secret.chmod(0o604)
    daemon.start()
    daemon.stop()
    assert f"{secret} holds secrets" in daemon.errors
    assert f"{config} holds secrets" not in daemon.errors
