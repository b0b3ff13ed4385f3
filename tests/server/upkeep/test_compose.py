"""The Compose file of a cluster: its parts fit, and its commands make a cluster that survives its database.

There are no containers here: commands, scripts and variables of the file are run as they stand, but for
hosts, ports and places.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import trio

from tests.ports import free_port

pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed (`make venv`)")

import yaml  # type: ignore[import-untyped]  # it has no types

import server
from server.cli.main import main
from tests.postgres.servers import PATIENCE, Servers, wait_until
from tests.server.cluster.test_failover import SOON, leader_of
from tests.server.processes import DaemonProcess, running
from tests.server.successions import witnessed

FOLDER: Final = Path(server.__file__).parent / "deploy"
FILE: Final = FOLDER / "compose.cluster.yaml"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text())
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
DATABASES: Final = ("database", "standby")
DAEMONS: Final = ("a", "b", "c")
SECRET: Final = "it's secret"

IMAGES_OWN: Final = r"""#!/bin/sh
# What the image's entrypoint does: a new database if there is none, then the server.
set -eu
shift
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" > "$HERE/word"
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile="$HERE/word" --encoding=UTF8 --no-sync >/dev/null
    alone="-c hba_file=$HBA -c listen_addresses= -c unix_socket_directories=$HERE"
    pg_ctl -D "$PGDATA" -w -o "$alone" start >/dev/null
    createdb "$POSTGRES_USER"
    pg_ctl -D "$PGDATA" -w stop >/dev/null
fi
exec postgres -D "$PGDATA" "$@" -c "listen_addresses=$LISTENS" -c "unix_socket_directories=$HERE" \
    -c shared_buffers=16MB -c dynamic_shared_memory_type=mmap -c wal_retrieve_retry_interval=100ms
"""


def test_each_part_is_there_that_another_names() -> None:
    assert {*SERVICES} == {*DATABASES, *DAEMONS}
    used = set()
    for name, service in SERVICES.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        for other, when in service.get("depends_on", {}).items():
            assert "healthcheck" in SERVICES[other] and when == {"condition": "service_healthy"}
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (FOLDER / source).exists()
            else:
                assert source in COMPOSE["volumes"], name
                used.add(source)
    assert used == {*COMPOSE["volumes"]}


def test_the_databases_copy_each_other_and_the_daemons_know_both() -> None:
    for name, peer in (DATABASES, DATABASES[::-1]):
        variables = SERVICES[name]["environment"]
        assert (variables["NAME"], variables["PEER"]) == (name, peer)
        assert f"{name}:{variables['PGDATA']}" in SERVICES[name]["volumes"]
        assert f"./hba.conf:{variables['HBA']}:ro" in SERVICES[name]["volumes"]
        assert variables["POSTGRES_PASSWORD"] == "${POSTGRES_PASSWORD:?}", "none by default"
    assert [name for name in DATABASES if "FIRST" in SERVICES[name]["environment"]] == ["database"]
    for name in DAEMONS:
        service, variables = SERVICES[name], SERVICES[name]["environment"]
        words = service["command"]
        port = words[words.index("--listen") + 1].rpartition(":")[2]
        assert variables["DATASPACE_SERVE_CLUSTER_NAME"] == name
        assert variables["DATASPACE_SERVE_CLUSTER_ADVERTISE"] == f"tcp://{name}:{port}"
        assert f"{name}:{variables['DATASPACE_SERVE_CLUSTER_STATE']}" in service["volumes"]
        assert {*service["depends_on"]} == {*DATABASES}
        data = words[words.index("--data") + 1]
        assert "@database,standby/" in data and "target_session_attrs=read-write" in data
        assert int(service["stop_grace_period"].removesuffix("s")) > 30


# -- as it runs ---------------------------------------------------------------------------------------


HOSTS: Final = {"database": "127.0.0.11", "standby": "127.0.0.12"}
"""Where the databases listen, in place of their names in the network of the containers."""


def here(value: str) -> str:
    """Returns a value of the file with this test's password and hosts in it."""
    value = value.replace("${POSTGRES_PASSWORD:?}", SECRET)
    return HOSTS.get(value, value)


class Container:
    """A database of the file: its entrypoint with its variables, at an address of this machine."""

    def __init__(self, servers: Servers, name: str, port: int) -> None:
        self._servers = servers
        self._service = SERVICES[name]
        self.host = HOSTS[name]
        self.folder = servers.place / f"compose-{name}"
        self.data = self.folder / "data"
        self._process: subprocess.Popen[str] | None = None
        variables = self._service["environment"]
        self.environment = {each: here(str(value)) for each, value in variables.items() if each != "NAME"}
        self.environment |= {
            "NAME": name,
            "PATH": f"{self.folder}:{servers._programs}:/usr/bin:/bin",
            "PGDATA": str(self.data),
            "HBA": str(self.folder / "hba.conf"),
            "PGHOST": str(self.folder),
            "PGPORT": str(port),
            "HERE": str(self.folder),
            "LISTENS": self.host,
        }
        self.data.mkdir(parents=True)
        for each in ("database.sh", "hba.conf"):
            shutil.copy(FOLDER / each, self.folder)
        (self.folder / "docker-entrypoint.sh").write_text(IMAGES_OWN)
        (self.folder / "docker-entrypoint.sh").chmod(0o755)
        for place in (self.folder, self.data):
            place.chmod(0o700)
        for place in (self.folder, *self.folder.iterdir()):
            if servers._user is not None:
                shutil.chown(place, servers._user, servers._group)

    def start(self) -> None:
        with open(self.folder / "log", "a") as said:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
            words = self._words(self._service["entrypoint"])
            self._process = self._servers.start(*words, environment=self.environment, **pipes)

    def run(self, words: Sequence[str]) -> int:
        """Runs a command in it; returns its exit code."""
        with open(self.folder / "log", "a") as said:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
            with self._servers.start(*self._words(words), environment=self.environment, **pipes) as process:
                return process.wait(PATIENCE)

    def _words(self, words: Sequence[str]) -> list[str]:
        places = {"sh": "/bin/sh", "/database.sh": str(self.folder / "database.sh"), "127.0.0.1": self.host}
        return [places.get(each, each) for each in words]

    def wait_healthy(self) -> None:
        """Waits until its health check passes."""
        wait_until(lambda: self.run(self._service["healthcheck"]["test"][1:]) == 0, self.said)

    def wait(self) -> int:
        """Waits until it has ended; returns its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def end(self) -> None:
        """Ends the server at once, without a checkpoint."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)

    def empty(self) -> None:
        """Deletes its data, as with its volume."""
        shutil.rmtree(self.data)
        self.data.mkdir(mode=0o700)
        if self._servers._user is not None:
            shutil.chown(self.data, self._servers._user, self._servers._group)

    def wait_for_standby(self, name: str) -> None:
        """Waits until commits here wait for a standby."""
        question = "SELECT application_name, sync_state FROM pg_stat_replication"
        how = f"host={self.host} port={self.environment['PGPORT']} user=dataspace dbname=dataspace"
        with psycopg.connect(how, password=SECRET, autocommit=True) as connection:
            wait_until(lambda: connection.execute(question).fetchall() == [(name, "sync")], self.said)


@pytest.fixture
def containers(servers: Servers) -> Iterator[tuple[Container, Container]]:
    port = free_port()
    made = Container(servers, "database", port), Container(servers, "standby", port)
    yield made
    for each in made:
        each.end()
        shutil.rmtree(each.folder)


def daemon_of(name: str, port: str, state: Path) -> DaemonProcess:
    """Returns a daemon of the file, not started yet."""
    verb, option, listens, other, data = SERVICES[name]["command"]
    assert (verb, option, listens, other) == ("serve", "--listen", "tcp:0.0.0.0:7377", "--data")
    hosts = ",".join([f"{HOSTS[each]}:{port}" for each in DATABASES])
    daemon = DaemonProcess(data.replace("@database,standby/", f"@{hosts}/"))
    daemon.port = free_port()
    daemon.environment = {each: here(value) for each, value in SERVICES[name]["environment"].items()}
    daemon.environment["DATASPACE_SERVE_CLUSTER_STATE"] = str(state / name)
    daemon.environment["DATASPACE_SERVE_CLUSTER_ADVERTISE"] = daemon.url
    return daemon


def told(service: str) -> Sequence[str]:
    """Returns the command that the file tells an operator to run in a container of a service."""
    (line,) = re.findall(rf"exec -u postgres {service} (.*)", FILE.read_text())
    return shlex.split(line)


@pytest.mark.slow
async def test_a_turn_is_on_both_databases_and_the_standby_takes_over(
    containers: tuple[Container, Container],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Then the lost one comes back as the standby, once its data was deleted, and not before."""
    database, standby = containers
    assert (
        standby.run(["sh", "-c", 'mkdir "$PGDATA/copy" && touch "$PGDATA/copy/of an interrupted start"']) == 0
    )
    for each in (standby, database):  # they start at one moment
        await trio.to_thread.run_sync(each.start)
    for each in (database, standby):
        await trio.to_thread.run_sync(each.wait_healthy)
    await trio.to_thread.run_sync(database.wait_for_standby, "standby")
    daemons = [daemon_of(name, database.environment["PGPORT"], tmp_path) for name in DAEMONS]
    monkeypatch.setenv("PGPASSWORD", SECRET)
    with running(*daemons), trio.fail_after(SOON * 3):
        assert main(["cluster", "status", "--data", daemons[0].place]) == 0
        assert "may lose acknowledged turns" not in capsys.readouterr().out
        async with witnessed([each.url for each in daemons]) as witness:
            await witness.answered()
            await trio.to_thread.run_sync(database.end)
            before = witness.acknowledged
            assert await trio.to_thread.run_sync(standby.run, told("standby")) == 0, standby.said()
            await witness.answered()
            assert witness.acknowledged > before
            await trio.to_thread.run_sync(database.start)
            assert await trio.to_thread.run_sync(database.wait) == 1
            assert "has taken the place of this database: delete its data" in database.said()
            await trio.to_thread.run_sync(database.empty)
            await trio.to_thread.run_sync(database.start)
            await trio.to_thread.run_sync(database.wait_healthy)
            await trio.to_thread.run_sync(standby.wait_for_standby, "database")
            await witness.answered()
            await leader_of(daemons)
