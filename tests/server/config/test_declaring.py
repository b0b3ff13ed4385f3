"""The fields of dataclasses are the table of settings, and the settings make the dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from server.config.declaring import Declared, SettingGroup, computed, group, needed, optional, setting
from server.config.kinds import BYTES, COUNT, SECONDS, SOME, flag, names, text
from server.config.model import ALL, Config


@dataclass(frozen=True)
class Foreign:
    seconds: float = 1.0
    sent_bytes: int = 2
    count: int = 3
    on: bool = False
    inner: str = "no setting"


@dataclass(frozen=True)
class Whole:
    word: str = setting("a", text, option="word")
    several: tuple[str, ...] = computed(tuple, names, "elsewhere.several")
    foreign: Foreign = group(Foreign, "foreign", count=Declared(SOME, "foreign.least"), inner=None)
    maybe: Foreign | None = optional(Foreign, "maybe", lambda **_: None, inner=None)
    plain: int = 0


WHOLE = SettingGroup(Whole)
TABLE = {each.name: each for each in WHOLE.settings()}


def test_a_field_is_a_setting_where_it_states_one_or_is_in_a_group() -> None:
    assert [name for name in TABLE if not name.startswith("maybe.")] == [
        "word",
        "elsewhere.several",
        "foreign.seconds",
        "foreign.sent_bytes",
        "foreign.least",
        "foreign.on",
    ]
    assert (TABLE["word"].option, TABLE["word"].variable) == ("word", "DATASPACE_SERVE_WORD")
    assert TABLE["foreign.least"].leaf == "least"


def test_a_field_that_states_nothing_is_read_by_its_type() -> None:
    read = {each.leaf: each.read for each in WHOLE.of("maybe").settings()}
    assert read == {"seconds": SECONDS, "sent_bytes": BYTES, "count": COUNT, "on": flag}


def test_settings_at_their_defaults_make_the_class_at_its_defaults() -> None:
    for kind in (SettingGroup(Whole), ALL):
        assert kind.built({each.name: each.usual() for each in kind.settings()}) == kind.kind()


@pytest.mark.parametrize("name", ["space_limits", "quotas", "retention"])
def test_what_a_group_states_for_its_fields_reads_what_they_hold(name: str) -> None:
    held = {each.name: str(each.type) for each in fields(type(getattr(Config(), name)))}
    for field, each in ALL.of(name).members():
        assert not isinstance(each, SettingGroup)
        assert type(each.read("1")).__name__ in held[field].split(" | "), field


def test_an_entry_without_a_default_is_needed() -> None:
    @dataclass
    class Entry:
        run: str = needed(text)

    assert [each.needed for each in SettingGroup(Entry, "entries").settings()] == [True]
    assert not any(each.needed for each in ALL.of("web").settings())
