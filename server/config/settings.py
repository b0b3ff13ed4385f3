"""Settings of one word of ``dataspace serve``, by file, environment or command line.

``SETTINGS`` has them all: the name of each in the file, how it is read, and its option.  The command line
takes precedence over the environment (``DATASPACE_SERVE_…``), that over the file, and that over the default;
where each came from is kept, for ``--check``.

Always: a value that cannot be understood is refused with its place, the found value and the allowed values.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dataspace.errors import UsageError
from dataspace.kernel.limits import SpaceLimits
from dataspace.transport.addresses import parse_listen, parse_url
from relay.log.retention import Retention
from relay.store.address import StoreAddress, is_store_address
from server.config.bounds import BOUNDS, BYTES, COUNT, MOST_SECONDS, SECONDS, SettingBounds, Within
from server.config.model import (
    ARCHIVE_SECONDS,
    COMMITTED,
    DEFAULT_LISTEN,
    DURABLE,
    HANG_SECONDS,
    STALL_SECONDS,
    STOP_SECONDS,
    Cluster,
    Follow,
    Limits,
    Slow,
    Traces,
    Web,
    default_data,
)
from server.config.principals import Quotas
from server.config.units import duration, size

PREFIX: Final = "DATASPACE_SERVE_"
CONFIG: Final = f"{PREFIX}CONFIG"

MEMBER_NAME: Final = 100
"""Characters of the name of a daemon among the daemons of a store."""

END: Final = 1 << 63
"""Numbers are below this."""

Read = Callable[[object], object]
"""Makes a setting from an entry of a file or from text; raises ``UsageError`` with the expected form."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in the file, with the tables it is in; ``option`` is its option on the command
    line."""

    name: str
    read: Read
    default: object
    option: str | None = None

    @property
    def variable(self) -> str:
        """The name of the setting in the environment."""
        return PREFIX + self.name.replace(".", "_").upper()


_ORIGIN: Final = re.compile(r"\*|https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_MODE: Final = re.compile(r"0?[0-7]{1,3}")
_NAME: Final = re.compile(r"[a-z0-9._-]+")

DEFAULT: Final = "default"
"""The source of a value that is not stated anywhere."""


@dataclass(frozen=True, slots=True)
class Given:
    """The effective value of a setting, and where it came from."""

    value: object
    source: str


# -- how they are read -------------------------------------------------------------------------------


def flag(value: object) -> bool:
    """Returns true or false."""
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise UsageError(f"true or false is needed, not {value!r:.80}")


def text(value: object) -> str:
    """Returns text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise UsageError(f"text is needed, not {value!r:.80}")


def count(value: object) -> int:
    """A number from 0."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < END:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= END:
        raise UsageError("a number below 2^63 is needed")
    raise UsageError(f"a number from 0 is needed, not {value!r:.80}")


def origins(value: object) -> tuple[str, ...]:
    """Returns one or several origins, separated by commas in text.

    >>> origins("https://app.example, http://localhost:5173")
    ('https://app.example', 'http://localhost:5173')
    """
    return _several(value, _ORIGIN, "an origin such as 'https://app.example', or '*' for all,")


def names(value: object) -> tuple[str, ...]:
    """Returns one or several names of machines, separated by commas in text.

    >>> names("a.example, b.example")
    ('a.example', 'b.example')
    """
    return _several(value, _NAME, "a name without a port, such as 'metrics.internal',")


def _several(value: object, form: re.Pattern[str], what: str) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise UsageError(f"{what} or an array of them is needed, not {value!r:.80}")
    found = []
    for each in given:
        if each != "":
            said = each.strip().lower() if isinstance(each, str) else ""
            if not form.fullmatch(said):
                raise UsageError(f"{what} is needed, not {each!r:.80}")
            found.append(said)
    return tuple(found)


def clusters(value: object) -> dict[str, tuple[int, ...]]:
    """Returns labels with positions of their fields, separated by commas in text.

    >>> clusters("flight=1, gate=0:2")
    {'flight': (1,), 'gate': (0, 2)}
    """
    given = value.split(",") if isinstance(value, str) else value
    found: dict[str, tuple[int, ...]] = {}
    for each in given if isinstance(given, list | tuple) else [given]:
        said = _CLUSTER.fullmatch(each.strip()) if isinstance(each, str) else None
        if said is None:
            raise UsageError(
                f"a label with positions of its fields, such as 'flight=1:0', is needed, not {each!r:.80}"
            )
        found[said[1]] = tuple(map(int, said[2].split(":")))
    return found


_CLUSTER: Final = re.compile(r"(.+)=(\d{1,3}(?::\d{1,3})*)")


def seconds(value: object) -> float:
    """Returns a time in seconds, from a number or text such as 10s."""
    if isinstance(value, str):
        value = duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_SECONDS:
        return float(value)
    raise UsageError(f"a time such as '10s' or 0.5 is needed, not {value!r:.80}")


def lasting(value: object) -> float:
    """Returns a time above zero, in seconds."""
    if (found := seconds(value)) > 0:
        return found
    raise UsageError(f"a time above 0 is needed, not {value!r:.80}")


def number_of_bytes(value: object) -> int:
    """A size, as text such as 10GiB, or in bytes."""
    return count(size(value) if isinstance(value, str) else value)


def path(value: object) -> Path:
    """The path of a file or a directory."""
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"a path without a null character is needed, not {value!r:.80}")
    return value if isinstance(value, Path) else Path(text(value)).expanduser()


def followed(value: object) -> Path:
    """The directory of the daemon that is followed."""
    if isinstance(value, str) and value.startswith(("postgresql:", "postgres:")):
        raise UsageError(
            "the directory of a daemon on this machine is needed; daemons of a store follow its leader by"
            " themselves: dataspace serve --data postgresql://HOST/DB?schema=NAME"
        )
    return path(value)


def place(value: object) -> Path | StoreAddress:
    """Where data is kept: a directory, or the address of a store in PostgreSQL."""
    if isinstance(value, StoreAddress):
        return value
    if isinstance(value, str) and (scheme := value.partition("://")[0]) != value:
        if is_store_address(value):
            return StoreAddress.parse(value)
        raise UsageError(f"data is kept in a directory or in postgresql://…, not in {scheme}://…")
    return path(value)


def archive_place(value: object) -> Path | str:
    """Where history is archived: a directory, or a URL that fsspec knows."""
    if isinstance(value, str) and "://" in value and not value.startswith("file://"):
        if "@" in value.partition("://")[2].partition("/")[0]:
            raise UsageError(
                "a URL without a password is needed; credentials come from where the store's tools have them"
            )
        return text(value)
    return path(value.removeprefix("file://") if isinstance(value, str) else value)


def member_name(value: object) -> str:
    """The name of a daemon among the daemons of a store."""
    name = text(value)
    if 0 < len(name) <= MEMBER_NAME and name.isprintable():
        return name
    raise UsageError(f"a name of 1 to {MEMBER_NAME} printable characters is needed, not {value!r:.80}")


def mode(value: object) -> int:
    """Returns permissions, from text such as 0660."""
    written = text(value)
    if _MODE.fullmatch(written):
        return int(written, 8)
    raise UsageError(f"permissions such as '0660' are needed, not {value!r:.80}")


def admin_address(value: object) -> str:
    """Returns the address of the admin listener, from HOST:PORT."""
    written = text(value)
    try:
        return parse_listen(f"tcp:{written.removeprefix('tcp:')}").listen
    except UsageError:
        raise UsageError(f"HOST:PORT is needed, such as 127.0.0.1:7379, not {written!r:.80}") from None


def advertised(value: object) -> str:
    """Returns the URL by which clients reach a daemon."""
    try:
        return parse_url(text(value)).url
    except UsageError as error:
        raise UsageError(f"{error}, not {value!r:.80}") from None


def advertised_web(value: object) -> str:
    """Returns the URL by which pages reach a daemon."""
    said = text(value).rstrip("/")
    if not _ORIGIN.fullmatch(said) or said == "*":
        raise UsageError(f"a URL such as 'https://a.example:7378' is needed, not {value!r:.80}")
    return said


def collector(value: object) -> str:
    """Returns the URL to which spans are sent, of OTLP over HTTP."""
    written = text(value)
    try:
        parts = urlsplit(written)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or "@" in parts.netloc or parts.query or parts.fragment or set(written) & set(" \t\r\n"):
        raise UsageError(
            f"the URL of a collector is needed, such as http://127.0.0.1:4318, not {written!r:.80}"
        )
    return written if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1/traces"


def share(value: object) -> float:
    """Returns a part of all, from 0 to 1."""
    try:
        found = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # what is none raises
    except (TypeError, ValueError):
        found = -1.0
    if 0 <= found <= 1:
        return found
    raise UsageError(f"a number from 0 to 1 is needed, such as 0.01, not {value!r:.80}")


def one_of(*known: str) -> Read:
    """Returns what reads one of some words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value.lower() in known:
            return value.lower()
        raise UsageError(f"{', '.join(known[:-1])} or {known[-1]} is needed, not {value!r:.80}")

    return read


def addresses(value: object) -> tuple[str, ...]:
    """Returns addresses to listen on: one or several, separated by commas in text."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not given:
        raise UsageError(f"an address or an array of them is needed, not {value!r:.80}")
    return tuple([parse_listen(text(each).strip()).listen for each in given])


def _limits() -> Iterable[Setting]:
    """Yields a setting for each limit of a connection, of a space, of a principal and of HTTP."""
    for kind, group in ((Limits, "limits"), (SpaceLimits, "limits"), (Quotas, "quota"), (Web, "web")):
        for field in fields(kind):
            default = getattr(kind(), field.name)
            if field.name in ("heartbeat_seconds", "grace_seconds"):
                continue  # settings of their own, above
            read: Read = seconds if isinstance(default, float) else count
            if field.name == "origins":
                read = origins
            if "bytes" in field.name or field.name == "memory":
                read = number_of_bytes
            name = f"{group}.{field.name}"
            yield Setting(name, read, default) if read is origins else _number(name, read, default)


def _number(name: str, read: Read, default: object, option: str | None = None) -> Setting:
    """Returns a setting that is a number, with its bounds."""
    usual, unit = _USUAL[read]
    return Setting(name, Within(read, BOUNDS.get(name, usual), unit), default, option)


_USUAL: Final[Mapping[Read, tuple[SettingBounds, str]]] = {
    seconds: (SECONDS, "seconds"),
    number_of_bytes: (BYTES, "bytes"),
    count: (COUNT, ""),
}
"""The bounds of settings without their own, and the unit for messages."""

SHOWN: Final = one_of(DURABLE, COMMITTED)
"""Reads what observers are shown."""

KEEPING: Final = {
    "age": _number("keep_for", seconds, None, "keep_for"),
    "size": _number("keep_bytes", number_of_bytes, None, "keep_bytes"),
    "acknowledged": Setting("keep_unread", flag, False, "keep_unread"),
    "reader_age": _number("keep_for_readers", seconds, Retention().reader_age),
    "reader_size": _number("keep_bytes_for_readers", number_of_bytes, Retention().reader_size),
    "archive_size": _number("keep_bytes_for_archive", number_of_bytes, None),
}
"""Settings of retention, by the field of ``Retention`` that they fill.

The daemon's settings are under ``log``; a dataspace may have its own.
"""

SETTINGS: Final = (
    Setting("listen", addresses, (DEFAULT_LISTEN,), "listen"),
    Setting("socket_mode", mode, 0o600, "socket_mode"),
    Setting("data", place, None, "data"),
    _number("followers", count, 0, "followers"),
    Setting("readers", addresses, (), "readers"),
    Setting("accept_damage", flag, False, "accept_damage"),
    Setting("show", SHOWN, None),
    Setting("loop", one_of("auto", "task", "reader"), "auto"),
    Setting("verbose", flag, False, "verbose"),
    Setting("without_rules", flag, False, "without_rules"),
    Setting("trace", path, None, "trace"),
    _number("heartbeat", seconds, Limits().heartbeat_seconds, "heartbeat"),
    _number("grace", seconds, Limits().grace_seconds, "grace"),
    _number("stall", seconds, STALL_SECONDS),
    _number("hang", seconds, HANG_SECONDS),
    _number("stop", seconds, STOP_SECONDS),
    Setting("admin", admin_address, None, "admin"),
    Setting("admin_names", names, ()),
    Setting("log_format", one_of("text", "json"), "text", "log_format"),
    Setting("log_level", one_of("debug", "info", "warning", "error"), "warning", "log_level"),
    Setting("audit", path, None, "audit"),
    Setting("follow.data", followed, None, "follow"),
    Setting("follow.stand_by", flag, False, "stand_by"),
    _number("follow.most_lag", seconds, Follow().most_lag),
    Setting("cluster.advertise", advertised, None, "advertise"),
    Setting("cluster.web", advertised_web, None),
    Setting("cluster.name", member_name, None),
    _number("cluster.lease", seconds, Cluster().lease),
    Setting("cluster.state", path, None),
    *[_number(f"slow.{each.name}", seconds, getattr(Slow(), each.name)) for each in fields(Slow)],
    Setting("traces.to", collector, None, "traces"),
    Setting("traces.ratio", share, Traces().ratio, "traces_ratio"),
    Setting("tls.certificate", path, None, "tls_certificate"),
    Setting("tls.key", path, None, "tls_key"),
    Setting("tls.client_ca", path, None, "tls_client_ca"),
    *[Setting(f"log.{each.name}", each.read, each.default, each.option) for each in KEEPING.values()],
    Setting("log.archive", archive_place, None, "archive"),
    _number("log.archive_every", seconds, ARCHIVE_SECONDS),
    Setting("log.archive_delta", flag, False),
    Setting("log.archive_cluster", clusters, {}),
    *_limits(),
)
BY_NAME: Final = {each.name: each for each in SETTINGS}


# -- what holds --------------------------------------------------------------------------------------


def settle(
    args: argparse.Namespace, environment: Mapping[str, str], stated: Mapping[str, object], file: Path | None
) -> dict[str, Given]:
    """Returns the effective value of each setting; ``stated`` has the settings of the file, by dotted
    name."""
    _check_environment(environment)
    return {each.name: _settle(each, args, environment, stated, file) for each in SETTINGS}


def _settle(
    setting: Setting,
    args: argparse.Namespace,
    environment: Mapping[str, str],
    stated: Mapping[str, object],
    file: Path | None,
) -> Given:
    said = getattr(args, setting.option, None) if setting.option else None
    if said is not None and said is not False and said != []:
        option = f"--{setting.option.replace('_', '-')}"  # type: ignore[union-attr]  # there is one, as just seen
        return Given(understood(setting.read, said, option), option)
    if setting.variable in environment:
        given = environment[setting.variable]
        return Given(understood(setting.read, given, f"${setting.variable}"), f"${setting.variable}")
    if setting.name in stated:
        assert file is not None  # the values come from it
        read = understood(setting.read, stated[setting.name], f"{file}: {setting.name}")
        return Given(beside(file, read), str(file))
    return Given(default_data() if setting.name == "data" else setting.default, DEFAULT)


def beside(file: Path, value: object) -> object:
    """Returns a path of a file relative to the directory of that file."""
    return file.parent / value if isinstance(value, Path) else value


def understood(read: Read, value: object, where: str) -> object:
    """Returns what a value means; raises ``UsageError`` with its place."""
    try:
        return read(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _check_environment(environment: Mapping[str, str]) -> None:
    known = [CONFIG, *(each.variable for each in SETTINGS)]
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            raise UsageError(f"${name}: {unknown(name, known, 'variable')}")


def unknown(name: str, known: Iterable[str], what: str = "setting") -> str:
    """Returns the message about an unknown name, with the nearest known one."""
    names = list(known)
    near = [each for each in BY_NAME if each.rpartition(".")[2] == name]  # it belongs in another table
    near += difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"no such {what}{hint}, known are {', '.join(names)}"


def config_file(args: argparse.Namespace) -> Path | None:
    """Returns the file to read, named on the command line or in the environment; None if neither names
    one."""
    named = args.config or os.environ.get(CONFIG)
    return Path(named) if named else None
