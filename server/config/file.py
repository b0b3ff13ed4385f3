"""The configuration of a daemon as a whole: a TOML file, with the command line and the environment.

A setting of one word is settled by ``settings``; here is what takes a table of its own: dataspaces, rules,
hosted actors and tokens, and how all of it becomes a ``Config``.

Always: every table is read completely, so that no word of a file is ignored silently; a relative path is
relative to the directory of the file.
"""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dataspace.errors import UsageError
from dataspace.foreign import read_utf8
from dataspace.kernel.limits import SpaceLimits
from dataspace.rules.language.hosted import Functions
from dataspace.transport.credentials import read_token
from dataspace.wire.features import MAIN, SYSTEM
from index.values.freezing import freeze
from index.values.values import Map
from relay.store.address import StoreAddress
from server.config.declaring import SettingGroup
from server.config.functions import load_functions
from server.config.hosted import ACTORS, FLOWS, FUNCTIONS, HostedActor, HostedFlow, HostedFunction
from server.config.kinds import path, text
from server.config.model import (
    ALL,
    BESIDE_SPACES,
    COMMITTED,
    DURABLE,
    KEPT,
    QUOTAS,
    READING,
    SHOWN,
    SPACE_LIMITS,
    Config,
    ServerTls,
    SpaceConfig,
    place_of,
)
from server.config.principals import PUBLICATION_AMONG_TOKENS
from server.config.rights import KNOWN as RIGHTS, Key, Rights
from server.config.rules import RuleText
from server.config.settings import BY_NAME, DEFAULT, Given, beside, settle, understood, unknown

TABLES: Final = ("spaces", "rules", "actors", "flows", "functions", "tokens")
_PUBLICATION: Final = "quota.actions_per_publication"
SPACE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

Table = Mapping[str, Any]


class SettingSource:
    """One table of a file: each entry is read by name, and none may be left over."""

    def __init__(self, file: Path, where: str, table: object, known: tuple[str, ...]) -> None:
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {where}: a table is needed, not {table!r:.80}")
        self.file = file
        self.where = where
        self._table = table
        for name in table:
            if name not in known:
                raise UsageError(f"{file}: {where}.{name}: {unknown(name, known)}")

    def entry(self, name: str, read: Any, default: Any = None) -> Any:
        """Returns the entry of a name, or the default."""
        if name not in self._table:
            return default
        return beside(self.file, understood(read, self._table[name], self.place(name)))

    def need(self, name: str, read: Any) -> Any:
        """Returns the entry of a name; raises ``UsageError`` if there is none."""
        if name not in self._table:
            raise UsageError(f"{self.place(name)}: missing")
        return self.entry(name, read)

    def table(self, name: str, known: tuple[str, ...]) -> SettingSource:
        """Returns the table of a name within this one; an empty one where there is none."""
        return SettingSource(self.file, f"{self.where}.{name}", self._table.get(name, {}), known)

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def place(self, name: str) -> str:
        """Returns where an entry is, for messages."""
        return f"{self.file}: {self.where}.{name}"


class Loaded:
    """A configuration, and where each part of it came from."""

    def __init__(self, config: Config, given: Mapping[str, Given], file: Path | None) -> None:
        self.config = config
        self.given = given
        self.file = file


IN_CLUSTER: Final = "default in a cluster"


def load(args: argparse.Namespace, file: Path | None) -> Loaded:
    """Returns the effective configuration; raises ``UsageError`` with the place of what cannot be
    understood."""
    document = {} if file is None else _read(file)
    given = settle(args, os.environ, dict(_stated(document, file)), file)
    if "tokens" in document and given[_PUBLICATION].source == DEFAULT:
        given[_PUBLICATION] = Given(PUBLICATION_AMONG_TOKENS, "default with [[tokens]]")
    if isinstance(given["data"].value, StoreAddress):
        lease = given["cluster.lease"].value
        assert isinstance(lease, float)  # by its reader
        for name, default in (("heartbeat", lease / 2), ("show", DURABLE)):
            if given[name].source == DEFAULT:
                given[name] = Given(default, IN_CLUSTER)
    config: Config = ALL.built({name: each.value for name, each in given.items()})
    config = replace(
        config,
        data=config.follow.data or config.data,
        retention=replace(config.retention, archived=config.archive.place is not None),
    )
    _check_followers(config)
    spaces = _spaces(document, file, config.all_spaces()[0], args)
    config = _with_connections(config, given, len(spaces) + 1)
    if config.without_rules:
        config = replace(config, space_limits=replace(config.space_limits, rules=0))
        spaces = {name: replace(each, limits=replace(each.limits, rules=0)) for name, each in spaces.items()}
    for name, show in [(MAIN, config.show), *[(each.name, each.show) for each in spaces.values()]]:
        if isinstance(config.data, StoreAddress) and show == COMMITTED:
            raise UsageError(
                f"space {name}: show = 'committed' is not for a store that daemons share, since an epoch"
                " that is shown before it is on disk may be one that its next leader does not know"
            )
    rules = _rules(document, file, [MAIN, *spaces])
    rules[MAIN] = [*rules[MAIN], *map(Path, args.rules)]
    actors = [
        *_hosted(ACTORS, document, file, [MAIN, *spaces]),
        *[HostedActor(name) for name in args.actor or ()],
    ]
    flows = [
        *_hosted(FLOWS, document, file, [MAIN, *spaces]),
        *[HostedFlow(name) for name in args.flow or ()],
    ]
    _check_names(actors, "actors")
    _check_names(flows, "flows")
    config = replace(
        config,
        rules=tuple(rules[MAIN]),
        spaces=tuple([replace(each, rules=tuple(rules[name])) for name, each in spaces.items()]),
        actors=tuple(actors),
        flows=tuple(flows),
        functions=tuple(_functions(document, file)),
        keys=tuple(_tokens(document, file)),
        secret_files=tuple(_secret_files(document, file, config.tls)),
    )
    return Loaded(config, given, file)


def _check_followers(config: Config) -> None:
    """Raises ``UsageError`` where settings about followers do not go together."""
    follow = config.follow.data
    if config.follow.stand_by and follow is None:
        raise UsageError("to stand by, a directory to follow is needed: --follow DIR")
    if bool(config.followers) != bool(config.readers):
        raise UsageError(
            "followers and an address for readers belong together: --followers N --readers ADDRESS"
        )
    if isinstance(config.data, StoreAddress) and config.followers:
        raise UsageError(
            f"followers is about a data directory; over {config.data} each further daemon follows"
        )
    if config.followers and follow is not None:
        raise UsageError("a daemon that follows another one starts no followers: leave out --followers")


def _with_connections(config: Config, given: dict[str, Given], spaces: int) -> Config:
    """Returns a configuration with as many connections to a database as so many spaces need at most.

    Raises ``UsageError`` for fewer than a daemon needs that leads all of them.
    """
    least, most = spaces + BESIDE_SPACES + 1, config.cluster.connections
    if not isinstance(config.data, StoreAddress) or most >= least:
        return config
    if most:
        raise UsageError(
            f"cluster.connections is {most}; a daemon that leads {spaces} of {spaces} spaces needs {least}"
        )
    most = spaces + BESIDE_SPACES + READING
    given["cluster.connections"] = Given(most, IN_CLUSTER)
    return replace(config, cluster=replace(config.cluster, connections=most))


def _read(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(read_utf8(file))
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the configuration {file}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from None


def _stated(document: Mapping[str, object], file: Path | None) -> Iterator[tuple[str, object]]:
    """Yields the settings of one word that a file has, by dotted name."""
    groups = {name.partition(".")[0] for name in BY_NAME if "." in name}
    alone = [name for name in BY_NAME if "." not in name]
    for name, value in document.items():
        if name in groups:
            known = tuple([each.partition(".")[2] for each in BY_NAME if each.startswith(f"{name}.")])
            assert file is not None  # the entries come from it
            SettingSource(file, name, value, known)
            yield from [(f"{name}.{below}", each) for below, each in value.items()]  # type: ignore[attr-defined]  # a table
        elif name in BY_NAME:
            yield name, value
        elif name not in TABLES:
            raise UsageError(f"{file}: {name}: {unknown(name, [*alone, *sorted(groups), *TABLES])}")


# -- tables ------------------------------------------------------------------------------------------


def _array(document: Table, file: Path | None, name: str, known: tuple[str, ...]) -> Iterator[SettingSource]:
    """Yields the tables ``[[name]]`` of a file."""
    tables = document.get(name, [])
    if not isinstance(tables, list):
        raise UsageError(f"{file}: {name}: tables [[{name}]] are needed, not {tables!r:.80}")
    for at, table in enumerate(tables):
        assert file is not None  # the tables come from it
        yield SettingSource(file, f"{name}[{at}]", table, known)


def _spaces(
    document: Table, file: Path | None, main: SpaceConfig, args: argparse.Namespace
) -> dict[str, SpaceConfig]:
    """Returns the dataspaces besides ``main``, without their rules; ``main`` has their defaults."""
    tables = document.get("spaces", {})
    if not isinstance(tables, dict):
        raise UsageError(f"{file}: spaces: tables [spaces.NAME] are needed, not {tables!r:.80}")
    found = {}
    for name, table in tables.items():
        assert file is not None  # the tables come from it
        _check_space_name(name, f"{file}: spaces.{name}")
        known = ("limits", "show", "prefer", *KEPT.leaves)
        source = SettingSource(file, f"spaces.{name}", table, known)
        found[name] = SpaceConfig(
            name,
            place_of(main.data, name),
            replace(main.limits, **_entries(SPACE_LIMITS, source.table("limits", SPACE_LIMITS.leaves))),
            replace(main.retention, **_entries(KEPT, source)),
            show=source.entry("show", SHOWN, main.show),
            prefer=source.entry("prefer", text, None),
        )
    for name in args.host_space or ():
        _check_space_name(name, "--host-space")
        found.setdefault(name, replace(main, name=name, data=place_of(main.data, name)))
    return found


def _check_space_name(name: str, where: str) -> None:
    if name in (MAIN, SYSTEM):
        raise UsageError(f"{where}: space {name!r} always exists; choose another name")
    if not SPACE_NAME.fullmatch(name):
        raise UsageError(f"{where}: a space is named by small letters, digits, - and _, not {name!r:.80}")


def _entries(group: SettingGroup, source: SettingSource) -> dict[str, Any]:
    """Returns what a table states of the fields of a class; a group of fields is a table within it."""
    found: dict[str, Any] = {}
    for field, member in group.members():
        if isinstance(member, SettingGroup):
            found[field] = member.kind(**_entries(member, source.table(member.leaf, member.leaves)))
        elif member.needed or member.leaf in source:
            found[field] = source.need(member.leaf, member.read)
    return found


def _rules(document: Table, file: Path | None, spaces: list[str]) -> dict[str, list[Path | RuleText]]:
    """Returns the rules of each dataspace in the configuration."""
    found: dict[str, list[Path | RuleText]] = {name: [] for name in spaces}
    for source in _array(document, file, "rules", ("file", "name", "text", "space")):
        if ("file" in source) == ("text" in source):
            raise UsageError(f"{source.place('file')}: either a file or a name and a text is needed")
        rule = (
            source.entry("file", path)
            if "file" in source
            else RuleText(source.need("name", text), source.need("text", text))
        )
        found[_space(source, spaces)].append(rule)
    return found


def _space(source: SettingSource, spaces: list[str]) -> str:
    name: str = source.entry("space", text, MAIN)
    if name not in spaces:
        raise UsageError(f"{source.place('space')}: {unknown(name, spaces, 'space')}")
    return name


def _hosted(group: SettingGroup, document: Table, file: Path | None, spaces: list[str]) -> Iterator[Any]:
    """Yields the actors or the flows of a file."""
    for source in _array(document, file, group.table, group.leaves):
        _space(source, spaces)
        yield group.kind(**_entries(group, source))


def functions_of(file: Path) -> Functions:
    """Returns the functions that a configuration registers for rules; reads nothing else of it."""
    return load_functions(_functions(_read(file), file))


def limits_of(file: Path) -> SpaceLimits:
    """Returns the limits of space ``main`` that a configuration has; reads nothing else of it."""
    given = settle(argparse.Namespace(), os.environ, dict(_stated(_read(file), file)), file)
    config: Config = ALL.built({name: each.value for name, each in given.items()})
    return config.space_limits


def _functions(document: Table, file: Path | None) -> Iterator[HostedFunction]:
    for source in _array(document, file, FUNCTIONS.table, FUNCTIONS.leaves):
        yield HostedFunction(**_entries(FUNCTIONS, source))


def _check_names(hosted: Sequence[HostedActor | HostedFlow], kind: str) -> None:
    """Raises ``UsageError`` for two actors of one name, which operators and services use."""
    seen: set[tuple[str, str]] = set()
    for row in hosted:
        at = (row.space, row.title)
        if at in seen:
            raise UsageError(f"two {kind} in space {row.space!r} are named {row.title!r}: rename one")
        seen.add(at)


def _tokens(document: Table, file: Path | None) -> Iterator[Key]:
    seen: set[str] = set()
    for source in _array(document, file, "tokens", ("name", "secret", "secret_file", "quota", *RIGHTS)):
        name = source.need("name", text)
        if name in seen:
            raise UsageError(f"{source.place('name')}: there are two tokens named {name!r}")
        seen.add(name)
        if ("secret" in source) == ("secret_file" in source):
            raise UsageError(f"{source.place('secret')}: either a secret or a secret_file is needed")
        secret = (
            source.entry("secret", _secret)
            if "secret" in source
            else read_token(source.entry("secret_file", path))
        )
        stated = {right: source.entry(right, freeze) for right in RIGHTS if right in source}
        try:
            yield Key(name, secret, Rights.read(Map(stated)), _quota(source))
        except UsageError as error:
            raise UsageError(f"{source.file}: {source.where}: {error}") from None


def _quota(source: SettingSource) -> tuple[tuple[str, int], ...]:
    """Returns the quotas that a token has of its own."""
    return tuple(_entries(QUOTAS, source.table("quota", QUOTAS.leaves)).items())


def _secret_files(document: Table, file: Path | None, tls: ServerTls | None) -> Iterator[Path]:
    """Yields the files that hold secrets; the tables of tokens have been read before."""
    tokens = document.get("tokens", [])
    if file is not None and any("secret" in table for table in tokens):
        yield file
    for table in tokens:
        if file is not None and "secret_file" in table:
            yield file.parent / path(table["secret_file"])
    if tls is not None:
        yield Path(tls.key or tls.certificate)


def _secret(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError("text is needed")  # the message omits what was found: it may be a secret
    return value
