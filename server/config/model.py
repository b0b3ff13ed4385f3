"""The daemon's settings: a field for each, with its default and how it is read (``declaring``)."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dataspace.codec import MAX_ELEMENTS
from dataspace.errors import UsageError
from dataspace.kernel.limits import SpaceLimits
from dataspace.transport.credentials import load_certificate
from dataspace.wire.features import MAIN
from dataspace.wire.frames import MAX_FRAME
from relay.delivery.memory import WAITING_BYTES
from relay.log.retention import Retention
from server.config.declaring import Declared, SettingGroup, computed, group, optional, setting
from server.config.kinds import (
    BYTES,
    COUNT,
    SECONDS,
    SOME,
    WAIT,
    addresses,
    admin_address,
    advertised,
    advertised_web,
    archive_place,
    clusters,
    collector,
    flag,
    followed,
    member_name,
    mode,
    names,
    one_of,
    origins,
    path,
    place,
    share,
)
from server.config.principals import IDENTITIES, NAME_BYTES, Quotas

if TYPE_CHECKING:
    from relay.store.address import StoreAddress
    from server.config.hosted import HostedActor, HostedFlow, HostedFunction
    from server.config.rights import Key
    from server.config.rules import RuleText

ANY: Final = "*"
"""Stands for all origins."""

DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Web:
    """Limits of one HTTP connection, in bytes and seconds, and the origins of pages that are not its own."""

    origins: tuple[str, ...] = setting((), origins)
    """Origins whose pages may connect beside the daemon's own, such as ``https://app.example``; or ``*``."""
    header_bytes: int = setting(16 << 10, BYTES.between(1024))
    """Bytes of the first line and the headers of a request."""
    header_seconds: float = setting(10.0, WAIT)
    """From the first moment of a connection, or of waiting for its next request's first byte to its end."""
    idle_seconds: float = setting(60.0, WAIT)
    """Between two requests of a connection."""
    body_bytes: int = 4 << 20
    body_seconds: float = setting(30.0, WAIT)
    """For the body of a request, from its headers on."""


COMMITTED: Final = "committed"
DURABLE: Final = "durable"
"""What observers are shown: epochs as they are committed, or only epochs on disk."""

SHOWN: Final = one_of(DURABLE, COMMITTED)
"""Reads what observers are shown."""


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

    connections: int = setting(4096, SOME)
    strangers: int = setting(256, SOME)
    hello_seconds: float = setting(5.0, WAIT)
    heartbeat_seconds: float = setting(15.0, SECONDS.between(0.05, DAY), "heartbeat", "heartbeat")
    heartbeat_least: float = setting(0.05, SECONDS.between(0.01, DAY))
    grace_seconds: float = setting(300.0, SECONDS, "grace", "grace")
    waiting_sessions: int = 4096
    offered_bytes: int = 8 << 20
    memory: int = setting(0, BYTES.between(128 << 20, zero=True))  # a daemon without facts takes some 60 MiB
    """Bytes that the daemon may account for in all; 0 is half of what the machine or control group has."""
    waiting_bytes: int = setting(WAITING_BYTES, BYTES.between(4096))
    identities: int = IDENTITIES
    """Identities without a connection whose turn numbers are remembered: the latest ones."""
    name_bytes: int = setting(NAME_BYTES, BYTES.between(64))  # clients choose names of 30 bytes themselves
    """Bytes of the name of an identity, an owner or a lease."""
    leases: int = 65_536
    lease_seconds: float = setting(86_400.0, WAIT)
    frame_seconds: float = setting(30.0, WAIT)
    stalled_seconds: float = setting(60.0, WAIT)
    frame_bytes: int = setting(MAX_FRAME, BYTES.between(4096, 1 << 30))  # a greeting needs some 300 bytes
    frame_elements: int = setting(MAX_ELEMENTS, COUNT.between(256, 1 << 30))
    retained_bytes: int = 2 << 30
    """What topics in memory may retain together, each as much as was requested for it."""
    streams: int = setting(4096, SOME)
    all_streams: int = setting(262_144, SOME)
    replays: int = 256
    all_replays: int = 256
    unsent_bytes: int = setting(1 << 20, BYTES.between(4096))
    requests: int = setting(1024, SOME)
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
class ServerTls:
    """The daemon's certificate and key, and the authorities that sign its clients' certificates; all PEM
    files.

    Without ``client_ca`` clients need no certificate; without ``key`` it is in the file of the certificate.
    """

    certificate: str
    key: str | None = None
    client_ca: str | None = None

    @classmethod
    def of_files(cls, certificate: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
        """Returns the TLS of these files, None without any; raises ``UsageError`` without a certificate."""
        if certificate is not None:
            return cls(str(certificate), str(key) if key else None, str(client_ca) if client_ca else None)
        if key or client_ca:
            raise UsageError("tls: tls.key and tls.client_ca need tls.certificate")
        return None

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

    format: str = setting("text", one_of("text", "json"), "log_format", "log_format")
    level: str = setting("warning", one_of("debug", "info", "warning", "error"), "log_level", "log_level")
    audit: Path | None = setting(None, path, "audit", "audit")
    """The file of refused logins, refused rights and administrative acts; none without it."""
    slow: Slow = group(Slow, "slow")


@dataclass(frozen=True, slots=True)
class Traces:
    """The destination of spans of turns, and the share of turns with spans."""

    to: str | None = setting(None, collector, option="traces")
    """The URL of a collector that takes OTLP over HTTP; no spans are made without it."""
    ratio: float = setting(0.01, share, option="traces_ratio")
    """The traced share of the turns that state no trace of their own, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Whether this daemon follows the log of another one, and how."""

    data: Path | None = setting(None, followed, option="follow")
    """The data directory of the daemon that leads; None in a daemon that leads."""
    stand_by: bool = setting(False, flag, option="stand_by")
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


BESIDE_SPACES: Final = 6
"""Connections to a database that a daemon may need beside one for each space, and those that read: for its
lease, the confirmation of that, terms (two while a take-over is held up), topics, and staged batches."""

READING: Final = 4
"""Connections that read, unless another number is set."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What daemons over one log tell clients about themselves."""

    advertise: str | None = setting(None, advertised, option="advertise")
    """The URL by which clients reach this daemon; by default the URL of its first address."""
    web: str | None = setting(None, advertised_web)
    """The same for HTTP."""
    name: str | None = setting(None, member_name)
    """The name of this daemon among the daemons of a store; by default its machine and process."""
    lease: float = setting(3.0, SECONDS.between(0.2, 3600.0))  # renewed every third of it, over a network
    """Seconds after which another daemon leads if this one has not renewed its lease."""
    connections: int = setting(0, COUNT.between(BESIDE_SPACES + 2, 10_000, zero=True))
    """Connections to the database that this daemon has at most; 0 is as many as are of use."""
    state: Path | None = setting(None, path)
    """A directory in which this daemon remembers the newest place of each log that it has seen."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """Where the daemon archives history, and how."""

    place: Path | str | None = setting(None, archive_place, "log.archive", "archive")
    """The directory or URL of the archive; no epoch is archived without it."""
    seconds: float = setting(3600.0, SECONDS.between(0.01), "log.archive_every")
    """How long an epoch waits at most to be archived."""
    delta: bool = setting(False, flag, "log.archive_delta")
    """Whether Delta tables over the archive are kept up to date."""
    clusters: Mapping[str, tuple[int, ...]] = computed(dict, clusters, "log.archive_cluster")
    """By labels the fields that archived rows are ordered by."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of ``dataspace serve``."""

    listen: tuple[str, ...] = setting(("tcp:127.0.0.1:7377",), addresses, option="listen")
    data: Path | StoreAddress = computed(default_data, place, option="data")
    """A directory, or a store in PostgreSQL."""
    socket_mode: int = setting(0o600, mode, option="socket_mode")
    """Permissions of the Unix sockets."""
    followers: int = setting(0, COUNT.between(0, 64), option="followers")
    """The number of followers that the daemon starts; each costs it a packet for each group of epochs on
    disk."""
    readers: tuple[str, ...] = setting((), addresses, option="readers")
    """The addresses that these followers share."""
    accept_damage: bool = setting(False, flag, option="accept_damage")
    show: str | None = setting(None, SHOWN)
    """What observers of ``main`` are shown, and of each space that states nothing else."""
    loop: str = setting("auto", one_of("auto", "task", "reader"))
    """How sockets of clients are read: with one ``reader`` for all, or a ``task`` for each; ``auto`` is
    ``reader`` on a system that has epoll and eventfd."""
    verbose: bool = setting(False, flag, option="verbose")
    """True if every session is logged."""
    without_rules: bool = setting(False, flag, option="without_rules")
    """True if the limits of rules are 0, whatever else is stated of them."""
    trace: Path | None = setting(None, path, option="trace")
    """File to which every turn of hosted actors is written, as text."""
    stall_seconds: float = setting(0.8, SECONDS.between(0.001), "stall")
    """Seconds after which the watchdog logs a turn of a hosted actor that has not ended."""
    hang_seconds: float = setting(30.0, SECONDS.between(0.05), "hang")
    """Seconds without a report after which the process of an isolated actor is killed, and started again."""
    stop_seconds: float = setting(30.0, SECONDS.between(0.01, DAY), "stop")
    """Seconds that an orderly end may take, from the signal on."""
    admin: str | None = setting(None, admin_address, option="admin")
    """Where metrics and health are served over HTTP, as ``tcp:HOST:PORT``; nowhere without it."""
    admin_names: tuple[str, ...] = setting((), names)
    """Names by which metrics may be asked for there, beside addresses and names of this machine."""
    follow: Follow = group(Follow, "follow")
    cluster: Cluster = group(Cluster, "cluster")
    logging: Logging = group(Logging)
    traces: Traces = group(Traces, "traces")
    tls: ServerTls | None = optional(
        ServerTls,
        "tls",
        ServerTls.of_files,
        certificate=Declared(path, option="tls_certificate"),
        key=Declared(path, option="tls_key"),
        client_ca=Declared(path, option="tls_client_ca"),
    )
    """Certificate for addresses that begin with ``tls:`` or ``https:``."""
    retention: Retention = group(
        Retention,
        "log",
        age=Declared(SECONDS, "log.keep_for", "keep_for"),
        size=Declared(BYTES, "log.keep_bytes", "keep_bytes"),
        acknowledged=Declared(flag, "log.keep_unread", "keep_unread"),
        reader_age=Declared(SECONDS, "log.keep_for_readers"),
        reader_size=Declared(BYTES, "log.keep_bytes_for_readers"),
        archive_size=Declared(BYTES, "log.keep_bytes_for_archive"),
        archived=None,
        windows=None,
    )
    """Retention of the past of ``main``, and of each space without its own."""
    archive: Archiving = group(Archiving)
    limits: Limits = group(Limits, "limits")
    space_limits: SpaceLimits = group(SpaceLimits, "limits", actions_per_turn=Declared(SOME))
    """Limits of the space ``main``, and of each space without its own."""
    quotas: Quotas = group(Quotas, "quota", connections=Declared(SOME), strangers=Declared(SOME))
    """The shares of one principal in the limits."""
    web: Web = group(Web, "web")
    """What holds for addresses that begin with ``http:`` or ``https:``."""
    inherited: Inherited | None = None
    """What the daemon has inherited, if another one has started it: the sockets for ``listen`` among it."""
    rules: tuple[Path | RuleText, ...] = ()
    """Rules of the daemon in the space ``main``."""
    spaces: tuple[SpaceConfig, ...] = ()
    """The dataspaces besides ``main``; each has a directory within the daemon's."""
    actors: tuple[HostedActor, ...] = ()
    flows: tuple[HostedFlow, ...] = ()
    functions: tuple[HostedFunction, ...] = ()
    keys: tuple[Key, ...] = ()
    """Tokens and their rights; without any, every peer is admitted."""
    secret_files: tuple[Path, ...] = ()
    """Files that hold secrets: of tokens, and the key of the certificate."""

    def quotas_of_tokens(self) -> dict[str, Quotas]:
        """Returns the quotas of the tokens that have some of their own."""
        return {each.name: replace(self.quotas, **dict(each.quota)) for each in self.keys if each.quota}

    def all_spaces(self) -> tuple[SpaceConfig, ...]:
        """Returns every dataspace, ``main`` first."""
        main = SpaceConfig(MAIN, self.data, self.space_limits, self.retention, self.rules, self.show)
        return (main, *self.spaces)


ALL: Final = SettingGroup(Config)
"""Every setting of one word, in the groups of ``Config``."""

SPACE_LIMITS: Final = ALL.of("space_limits")
KEPT: Final = ALL.of("retention")
QUOTAS: Final = ALL.of("quotas")
"""Settings that a space, or a token, may state for itself, by field."""
