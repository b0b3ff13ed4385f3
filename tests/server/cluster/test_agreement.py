"""Daemons with the same settings have the same digest, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.store.address import StoreAddress
from server.cluster.database.agreement import digest
from server.config.hosted import HostedFlow, HostedFunction
from server.config.model import Cluster, Config, Limits, SpaceConfig
from server.config.rights import Key, Rights
from server.config.rules import RuleText

STORE = StoreAddress.parse("postgresql://h/db")
KEYS = (Key("map", "s" * 32, Rights(assert_=("here($x)",))), Key("other", "t" * 32))
CONFIG = Config(data=STORE, keys=KEYS, rules=(RuleText("a", "b(x) if c(x)."),))


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, keys=KEYS[:1]),
        lambda config: replace(config, keys=(replace(KEYS[0], secret="u" * 32), KEYS[1])),
        lambda config: replace(config, keys=(replace(KEYS[0], rights=Rights()), KEYS[1])),
        lambda config: replace(config, keys=(replace(KEYS[0], quota=(("facts", 1),)), KEYS[1])),
        lambda config: replace(config, limits=Limits(requests=7)),
        lambda config: replace(config, show="committed"),
        lambda config: replace(config, rules=()),
        lambda config: replace(config, spaces=(SpaceConfig("plant", STORE),)),
        lambda config: replace(config, flows=(HostedFlow("plant:flow"),)),
        lambda config: replace(config, functions=(HostedFunction("plant:far", ("int",), "int"),)),
    ],
)
def test_it_differs_by_rights_limits_rules_and_programs(change: Callable[[Config], Config]) -> None:
    assert digest(change(CONFIG)) != digest(CONFIG)


@pytest.mark.parametrize(
    "change",
    [
        lambda config: replace(config, keys=(KEYS[1], KEYS[0])),
        lambda config: replace(config, limits=Limits(memory=1 << 30)),
        lambda config: replace(config, listen=("tcp:127.0.0.1:1",), cluster=Cluster(name="b")),
        lambda config: replace(config, data=StoreAddress.parse("postgresql://h,i/db")),
    ],
)
def test_it_is_the_same_where_machines_differ(change: Callable[[Config], Config]) -> None:
    assert digest(change(CONFIG)) == digest(CONFIG)


def test_a_file_of_rules_counts_by_its_content_wherever_it_is(tmp_path: Path) -> None:
    files = [tmp_path / name / "a.rules" for name in ("one", "two")]
    for each in files:
        each.parent.mkdir()
        each.write_text("b(x) if c(x).")
    one, two = [replace(CONFIG, rules=(each,)) for each in files]
    assert digest(one) == digest(two)
    before = digest(two)
    files[1].write_text("b(x) if d(x).")
    assert digest(two) != before
