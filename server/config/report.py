"""The report of ``dataspace serve --check``: the effective settings, and where each comes from.

Always: the printed text is a valid configuration again, except for the secrets, which are omitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from index.values.values import Map
from relay.store.address import StoreAddress
from server.config.declaring import SettingGroup
from server.config.file import Loaded
from server.config.hosted import ACTORS, FLOWS, FUNCTIONS, HostedActor, HostedFlow, HostedFunction
from server.config.model import KEPT, Config
from server.config.rights import Key
from server.config.rules import RuleText
from server.config.settings import Given


def check_lines(loaded: Loaded) -> Iterator[str]:
    """Yields the lines of the effective configuration, as TOML with comments."""
    table = ""
    for name, given in loaded.given.items():
        group, dot, below = name.rpartition(".")
        if dot and group != table:
            table = group
            yield f"\n[{group}]"
        yield _line(below, given)
    yield from _space_lines(loaded.config)
    where = f"  # {loaded.file}" if loaded.file is not None else ""
    for name, rules in _rules(loaded.config):
        for rule in rules:
            yield f"\n[[rules]]\nspace = {_toml(name)}"
            yield from _rule_lines(rule)
    for actor in loaded.config.actors:
        yield "\n[[actors]]" + (where if actor.name else "")
        yield from _hosted_lines(ACTORS, actor)
    for flow in loaded.config.flows:
        yield "\n[[flows]]" + (where if flow.name else "")
        yield from _hosted_lines(FLOWS, flow)
    for function in loaded.config.functions:
        yield f"\n[[functions]]{where}"
        yield from _hosted_lines(FUNCTIONS, function)
    for key in loaded.config.keys:
        yield f"\n[[tokens]]{where}"
        yield from _token_lines(key)


def _line(name: str, given: Given) -> str:
    if given.value is None:
        return f"# {name} is not set"
    said = f"{name} = {_written(name, given.value)}"
    return f"{said:<50} # {given.source}"


def _written(name: str, value: object) -> str:
    return f'"{value:04o}"' if name == "socket_mode" else _toml(value)


def _toml(value: object) -> str:
    """Returns a value as TOML, which has fewer kinds, but every kind that comes from TOML."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Map):
        return f"{{{', '.join([f'{json.dumps(name)} = {_toml(each)}' for name, each in value.pairs()])}}}"
    return json.dumps(str(value) if isinstance(value, Path | StoreAddress) else value, ensure_ascii=False)


def _space_lines(config: Config) -> Iterator[str]:
    for space in config.spaces:
        yield f"\n[spaces.{space.name}]  # in {space.data}"
        for limit, value in asdict(space.limits).items():
            if value != getattr(config.space_limits, limit):
                yield f"limits.{limit} = {value}"
        if space.show != config.show:
            yield f"show = {_toml(space.show)}"
        for field, setting in KEPT.members():
            value = getattr(space.retention, field)
            if value is not None:
                yield f"{setting.leaf} = {_written(setting.leaf, value)}"


def _rules(config: Config) -> Iterator[tuple[str, Iterable[Path | RuleText]]]:
    for each in config.all_spaces():
        yield each.name, each.rules


def _rule_lines(rule: Path | RuleText) -> Iterator[str]:
    if isinstance(rule, Path):
        yield f"file = {_toml(str(rule))}"
    else:
        yield f"name = {_toml(rule.name)}\ntext = {_toml(rule.text)}"


def _hosted_lines(group: SettingGroup, row: HostedActor | HostedFlow | HostedFunction) -> Iterator[str]:
    for field, member in group.members():
        value = row.title if field == "name" else getattr(row, field)
        if isinstance(member, SettingGroup):
            inner = [f"{name} = {_toml(getattr(value, name))}" for name in member.leaves]
            yield f"{member.leaf} = {{ {', '.join(inner)} }}"
        elif member.needed or value not in (None, ()):
            yield f"{member.leaf} = {_toml(value)}"


def _token_lines(key: Key) -> Iterator[str]:
    yield f"name = {_toml(key.name)}"
    yield "# its secret is not shown"
    for limit, most in key.quota:
        yield f"quota.{limit} = {most}"
    for name, value in key.rights.stated().pairs():
        yield f"{name!s} = {_toml(value)}"
