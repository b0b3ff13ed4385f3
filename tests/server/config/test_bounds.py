"""Each setting that is a number has bounds: within them a daemon serves clients, beyond them it refuses.

The grid: each setting times its bounds and what lies just beyond, nothing, less than nothing, more than a
clock or a file can hold, and what is no number; by a file and by the environment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.errors import Refused, UsageError
from server.cli.parser import parser
from server.config.bounds import SettingBounds, Within
from server.config.declaring import Setting
from server.config.file import load
from server.config.kinds import BYTES, COUNT, SECONDS
from server.config.model import Config
from server.config.settings import SETTINGS
from server.daemon.serve import serve

NUMBERS = {each.name: each for each in SETTINGS if isinstance(each.read, Within)}
NARROW = [name for name, each in NUMBERS.items() if each.read not in (SECONDS, BYTES, COUNT)]
PERMISSIONS = ("socket_mode",)
SHARES = ("traces.ratio",)
NO_NUMBERS: tuple[object, ...] = (
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    True,
    [],
    {},
    "much",
    "",
    "-1",
    "1e3",
    "١",
)


SERVE = parser().parse_args(["serve"])
"""The command line, read once: to make the parser takes longer than to load a file."""


def bounds(name: str) -> SettingBounds:
    read = NUMBERS[name].read
    assert isinstance(read, Within)
    return read.bounds


def config(directory: Path, name: str, value: float) -> Config:
    """The configuration of a file that has one setting."""
    file = directory / "dataspace.toml"
    lines = ['listen = ["tcp:127.0.0.1:0"]', f'data = "{directory}/data"', f"{name} = {value!r}"]
    file.write_text("\n".join(lines))
    return load(SERVE, file).config


def test_all_numbers_have_bounds() -> None:
    counted = [
        each.name
        for each in SETTINGS
        if isinstance(each.default, int | float) and not isinstance(each.default, bool)
    ]
    assert set(counted) - set(NUMBERS) == {*PERMISSIONS, *SHARES}


@pytest.mark.parametrize("setting", NUMBERS.values(), ids=NUMBERS)
def test_a_value_beyond_the_bounds_is_refused_with_them(setting: Setting) -> None:
    within = bounds(setting.name)
    assert setting.default is None or setting.default in within
    for value in within.least, within.most, *((0,) if within.zero else ()):
        assert setting.read(value) == value
    for value in beyond(within):
        with pytest.raises(UsageError, match="needed") as raised:
            setting.read(value)
        said = str(raised.value)
        if value in (0, within.most * 2) and value < 1e9:
            assert within.words in said
    for nothing in NO_NUMBERS:
        with pytest.raises(UsageError):
            setting.read(nothing)


def beyond(within: SettingBounds) -> Iterator[float]:
    """Numbers that are not in the bounds, on both sides."""
    yield -1
    yield within.most * 2
    yield 1 << 63
    if within.least > 0:
        yield within.least / 2 if within.least < 1 else within.least // 2 or -1
        if not within.zero:
            yield 0


@pytest.mark.parametrize("name", NUMBERS)
def test_a_file_and_a_variable_have_the_same_bounds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in beyond(bounds(name)):
        with pytest.raises(UsageError, match=rf"dataspace\.toml: {name}: .*needed"):
            config(tmp_path, name, value)
    monkeypatch.setenv(NUMBERS[name].variable, str(int(bounds(name).most) + 1))
    with pytest.raises(UsageError, match=rf"{NUMBERS[name].variable}: .*needed"):
        load(SERVE, None)


TABLES = (
    ("[spaces.a]\nlimits = {actions_per_turn = 0}", "spaces.a.limits.actions_per_turn"),
    ("[spaces.a]\nkeep_for = -1", "spaces.a.keep_for"),
    ("[[tokens]]\nname = 'a'\nsecret = 'long enough, really'\nquota = {strangers = 0}", "quota.strangers"),
    ("[[actors]]\nrun = 'a:b'\nhang = 0", "hang"),
    ("[[actors]]\nrun = 'a:b'\nrestart = {period = 0}", "restart.period"),
    ("[[functions]]\nrun = 'a:b'\ntakes = []\ngives = 'int'\nlongest = 0", "longest"),
    ("socket_mode = '7777'", "socket_mode"),
    ("socket_mode = '0999'", "socket_mode"),
    ("listen = ['tcp:127.0.0.1:65536']", "listen"),
    ("listen = ['tcp:127.0.0.1:-1']", "listen"),
    ("admin = '127.0.0.1:65536'", "admin"),
    ("traces.ratio = -0.1", "traces.ratio"),
)


@pytest.mark.parametrize(("text", "place"), TABLES, ids=[each for _, each in TABLES])
def test_tables_have_the_same_bounds(text: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "dataspace.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=rf"{place}: "):
        load(SERVE, file)


def test_limits_of_a_space_are_read_as_those_of_the_daemon(tmp_path: Path) -> None:
    file = tmp_path / "dataspace.toml"
    file.write_text("[spaces.a]\nlimits = {facts_bytes = '1GiB', rule_window = '1h'}")
    (space,) = load(SERVE, file).config.spaces
    assert (space.limits.facts_bytes, space.limits.rule_window) == (1 << 30, 3600.0)


async def used(settings: Config) -> None:
    """A client sends, asserts and observes; what a limit of 0 forbids is refused as a limit."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            [address] = await nursery.start(serve, settings)
            url = address if "://" in address else f"tcp://{address.removeprefix('tcp:')}"
            async with dataspace.connect(url, owner="me") as space:
                await space.send(Record("m", 1))
                try:
                    await space.assert_(Record("p", "hello"))
                    async with space.observe("p($x)") as seen:
                        changes = await seen.next_epoch()
                        assert changes is not None and list(changes.added) == [("hello",)]
                except Refused as refused:
                    assert refused.code == "limit"
            nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "end"),
    [
        (NARROW, "least"),
        pytest.param(list(NUMBERS), "least", marks=pytest.mark.torture),
        pytest.param(list(NUMBERS), "most", marks=pytest.mark.torture),
    ],
    ids=["own bounds", "least", "most"],
)
async def test_a_daemon_with_a_setting_at_its_bound_serves_a_client(
    names: list[str], end: str, tmp_path: Path
) -> None:
    for name in names:
        if name != "followers":  # which needs addresses for readers
            directory = tmp_path / name
            directory.mkdir()
            await used(config(directory, name, getattr(bounds(name), end)))
