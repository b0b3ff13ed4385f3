"""The daemon's settings as data, with their defaults."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dataspace.actors.supervision import Restart
from dataspace.codec import MAX_ELEMENTS
from dataspace.errors import UsageError
from dataspace.kernel.limits import SpaceLimits
from dataspace.rules.language.hosted import COST, LONGEST
from dataspace.transport.credentials import load_certificate
from dataspace.wire.features import MAIN
from dataspace.wire.frames import MAX_FRAME
from index.values.values import Value
from relay.delivery.memory import WAITING_BYTES
from relay.log.retention import Retention
from relay.store.address import StoreAddress
from server.config.principals import IDENTITIES, NAME_BYTES, Quotas
from server.config.rights import Key
from server.config.rules import RuleText

ANY: Final = "*"
"""Stands for all origins."""


@dataclass(frozen=True, slots=True)
class Web:
    """Limits of one HTTP connection, in bytes and seconds, and the origins of pages that are not its own."""

    origins: tuple[str, ...] = ()
    """Origins whose pages may connect beside the daemon's own, such as ``https://app.example``; or ``*``."""
    header_bytes: int = 16 << 10
    """Bytes of the first line and the headers of a request."""
    header_seconds: float = 10.0
    """From the first moment of a connection, or of waiting for its next request's first byte to its end."""
    idle_seconds: float = 60.0
    """Between two requests of a connection."""
    body_bytes: int = 4 << 20
    body_seconds: float = 30.0
    """For the body of a request, from its headers on."""


DEFAULT_LISTEN: Final = "tcp:127.0.0.1:7377"
ARCHIVE_SECONDS: Final = 3600.0
STALL_SECONDS: Final = 0.8
HANG_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0


def own_name() -> str:
    """Returns the default name of this daemon: its machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def default_data() -> Path:
    """Returns the default directory of the log: ``$XDG_STATE_HOME/dataspace``, else ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "dataspace"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one connection, and of their number; in bytes and seconds unless counts."""

    connections: int = 4096
    strangers: int = 256
    hello_seconds: float = 5.0
    heartbeat_seconds: float = 15.0
    heartbeat_least: float = 0.05
    grace_seconds: float = 300.0
    waiting_sessions: int = 4096
    offered_bytes: int = 8 << 20
    memory: int = 0
    """Bytes that the daemon may account for in all; 0 is half of what the machine or control group has."""
    waiting_bytes: int = WAITING_BYTES
    identities: int = IDENTITIES
    """Identities without a connection whose turn numbers are remembered: the latest ones."""
    name_bytes: int = NAME_BYTES
    """Bytes of the name of an identity, an owner or a lease."""
    leases: int = 65_536
    lease_seconds: float = 86_400.0
    frame_seconds: float = 30.0
    stalled_seconds: float = 60.0
    frame_bytes: int = MAX_FRAME
    frame_elements: int = MAX_ELEMENTS
    retained_bytes: int = 2 << 30
    """What topics in memory may retain together, each as much as was requested for it."""
    streams: int = 4096
    all_streams: int = 262_144
    replays: int = 256
    all_replays: int = 256
    unsent_bytes: int = 1 << 20
    requests: int = 1024
    expected_facts: int = 10_000
    """Facts, or changes of facts, that the expectations of one turn may concern."""
    groups: int = 1_000
    """Groups of one space."""
    group_members: int = 1_000
    group_bytes: int = 128 << 20
    """What the undone items of the groups of one space may take in memory together."""
    group_dead: int = 10_000
    """Dead letters of one group: with so many it is paused."""
    staged_bytes: int = 4 << 30
    staged_seconds: float = 86_400.0


COMMITTED: Final = "committed"
DURABLE: Final = "durable"
"""What observers are shown: epochs as they are committed, or only epochs on disk."""


def place_of(data: Path | StoreAddress, space: str) -> Path | StoreAddress:
    """Returns where the log of a space besides ``main`` is."""
    return data / "spaces" / space if isinstance(data, Path) else data


@dataclass(frozen=True, slots=True)
class SpaceConfig:
    """One dataspace: where its log is, its limits, its retention, its rules and its ``show``."""

    name: str
    data: Path | StoreAddress
    """A directory of its own, or the store of the daemon."""
    limits: SpaceLimits = field(default_factory=SpaceLimits)
    retention: Retention = field(default_factory=Retention)
    rules: tuple[Path | RuleText, ...] = ()
    show: str | None = None
    """``durable`` or ``committed``; None leaves it to the daemon."""
    prefer: str | None = None
    """The daemon of a cluster that is to lead it, by its name."""


@dataclass(frozen=True, slots=True)
class HostedActor:
    """An actor that the daemon runs.

    ``run`` is ``module:function``, called with a turn and the ``arguments``.  With ``isolate`` it runs in a
    process of its own, which is killed when it has not reported for ``hang`` seconds (default: the daemon's).
    With ``required`` it is a service, which runs while ``require(name)`` is a fact of its space and all
    services that it ``needs`` are ready; else it runs from the start.
    """

    run: str
    name: str = ""
    space: str = MAIN
    arguments: tuple[Value, ...] = ()
    isolate: bool = False
    hang: float | None = None
    required: bool = False
    needs: tuple[str, ...] = ()
    restart: Restart = field(default_factory=Restart)

    @property
    def title(self) -> str:
        """The name of the actor for messages."""
        return self.name or self.run


@dataclass(frozen=True, slots=True)
class HostedFlow:
    """A flow that runs in the turns of a space: ``run``, a ``module:function``, makes it of ``arguments``."""

    run: str
    name: str = ""
    space: str = MAIN
    arguments: tuple[Value, ...] = ()

    @property
    def title(self) -> str:
        """The name of the flow for messages."""
        return self.name or self.run


@dataclass(frozen=True, slots=True)
class HostedFunction:
    """A function that rules of all spaces may call: ``run`` is ``module:function``.

    ``takes`` and ``gives`` are classes of values.  A call counts for ``cost`` units of work, and suspends its
    rule if it takes longer than ``longest`` seconds.
    """

    run: str
    takes: tuple[str, ...]
    gives: str
    name: str = ""
    cost: int = COST
    longest: float = LONGEST

    @property
    def title(self) -> str:
        """The name in rules: by default the last part of the module, a point, and the function."""
        module, _, function = self.run.partition(":")
        return self.name or f"{module.rpartition('.')[2]}.{function}"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The daemon's certificate and key, and the authorities that sign its clients' certificates; all PEM
    files.

    Without ``client_ca`` clients need no certificate; without ``key`` it is in the file of the certificate.
    """

    certificate: str
    key: str | None = None
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """Returns a context to accept with; raises ``UsageError`` for files that are no certificates."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        load_certificate(context, self.certificate, self.key)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"no certificates in {self.client_ca}: {error}") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class Slow:
    """Seconds from which on something is a line of the log; 0 for never."""

    turn: float = 1.0
    """A turn: nothing else runs during its step."""
    request: float = 10.0
    replay: float = 60.0
    """A replay, from its opening until it ends or is fed live; the time of its reader is a part of it."""
    rules: float = 0.5
    """What rules use of each second."""


@dataclass(frozen=True, slots=True)
class Logging:
    """What the daemon writes of what happens: the lines on its standard error, and the audit log."""

    format: str = "text"
    """``text`` or ``json``."""
    level: str = "warning"
    audit: Path | None = None
    """The file of refused logins, refused rights and administrative acts; none without it."""
    slow: Slow = field(default_factory=Slow)


@dataclass(frozen=True, slots=True)
class Traces:
    """The destination of spans of turns, and the share of turns with spans."""

    to: str | None = None
    """The URL of a collector that takes OTLP over HTTP; no spans are made without it."""
    ratio: float = 0.01
    """The traced share of the turns that state no trace of their own, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Whether this daemon follows the log of another one, and how."""

    data: Path | None = None
    """The data directory of the daemon that leads; None in a daemon that leads."""
    stand_by: bool = False
    """True if it leads once the leader has ended."""
    most_lag: float = 10.0
    """The seconds of lag beyond which new readers are sent to the leader."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a follower that a daemon has started inherits from it; files and sockets are descriptors."""

    number: int
    """Its number among the followers of the daemon, from 1."""
    alive: int
    """The pipe that ends with the daemon."""
    counts: int
    """The file in which each follower has the number of its connections."""
    sockets: dict[str, int]
    """The listening sockets, by address."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What daemons over one log tell clients about themselves."""

    advertise: str | None = None
    """The URL by which clients reach this daemon; by default the URL of its first address."""
    web: str | None = None
    """The same for HTTP."""
    name: str | None = None
    """The name of this daemon among the daemons of a store; by default its machine and process."""
    lease: float = 3.0
    """Seconds after which another daemon leads if this one has not renewed its lease."""
    state: Path | None = None
    """A directory in which this daemon remembers the newest place of each log that it has seen."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of ``dataspace serve``."""

    listen: tuple[str, ...] = (DEFAULT_LISTEN,)
    data: Path | StoreAddress = field(default_factory=default_data)
    """A directory, or a store in PostgreSQL."""
    limits: Limits = field(default_factory=Limits)
    quotas: Quotas = field(default_factory=Quotas)
    """The shares of one principal in the limits."""
    space_limits: SpaceLimits = field(default_factory=SpaceLimits)
    """Limits of the space ``main``, and of each space without its own."""
    retention: Retention = field(default_factory=Retention)
    """Retention of the past of ``main``, and of each space without its own."""
    archive: Path | str | None = None
    """The directory or URL of the archive; no epoch is archived without it."""
    archive_seconds: float = ARCHIVE_SECONDS
    """How long an epoch waits at most to be archived."""
    archive_delta: bool = False
    """Whether Delta tables over the archive are kept up to date."""
    archive_clusters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By labels the fields that archived rows are ordered by."""
    show: str | None = None
    """What observers of ``main`` are shown, and of each space that states nothing else."""
    accept_damage: bool = False
    follow: Follow = field(default_factory=Follow)
    cluster: Cluster = field(default_factory=Cluster)
    followers: int = 0
    """The number of followers that the daemon starts."""
    readers: tuple[str, ...] = ()
    """The addresses that these followers share."""
    inherited: Inherited | None = None
    """What the daemon has inherited, if another one has started it: the sockets for ``listen`` among it."""
    rules: tuple[Path | RuleText, ...] = ()
    """Rules of the daemon in the space ``main``."""
    spaces: tuple[SpaceConfig, ...] = ()
    """The dataspaces besides ``main``; each has a directory within the daemon's."""
    actors: tuple[HostedActor, ...] = ()
    flows: tuple[HostedFlow, ...] = ()
    functions: tuple[HostedFunction, ...] = ()
    trace: Path | None = None
    """File to which every turn of hosted actors is written, as text."""
    keys: tuple[Key, ...] = ()
    """Tokens and their rights; without any, every peer is admitted."""
    secret_files: tuple[Path, ...] = ()
    """Files that hold secrets: of tokens, and the key of the certificate."""
    tls: ServerTls | None = None
    """Certificate for addresses that begin with ``tls:`` or ``https:``."""
    web: Web = field(default_factory=Web)
    """What holds for addresses that begin with ``http:`` or ``https:``."""
    socket_mode: int = 0o600
    """Permissions of the Unix sockets."""
    loop: str = "auto"
    """How sockets of clients are read: with one ``reader`` for all, or a ``task`` for each; ``auto`` is
    ``reader`` on a system that has epoll and eventfd."""
    verbose: bool = False
    """True if every session is logged."""
    admin: str | None = None
    """Where metrics and health are served over HTTP, as ``tcp:HOST:PORT``; nowhere without it."""
    admin_names: tuple[str, ...] = ()
    """Names by which metrics may be asked for there, beside addresses and names of this machine."""
    logging: Logging = field(default_factory=Logging)
    traces: Traces = field(default_factory=Traces)
    stall_seconds: float = STALL_SECONDS
    """Seconds after which the watchdog logs a turn of a hosted actor that has not ended."""
    hang_seconds: float = HANG_SECONDS
    """Seconds without a report after which the process of an isolated actor is killed, and started again."""
    stop_seconds: float = STOP_SECONDS
    """Seconds that an orderly end may take, from the signal on."""

    def quotas_of_tokens(self) -> dict[str, Quotas]:
        """Returns the quotas of the tokens that have some of their own."""
        return {each.name: replace(self.quotas, **dict(each.quota)) for each in self.keys if each.quota}

    def all_spaces(self) -> tuple[SpaceConfig, ...]:
        """Returns every dataspace, ``main`` first."""
        main = SpaceConfig(MAIN, self.data, self.space_limits, self.retention, self.rules, self.show)
        return (main, *self.spaces)
