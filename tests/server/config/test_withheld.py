"""What the daemon says of itself is cut to what the asker may inspect and observe."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Refused
from dataspace.kernel.actions import ASSERT
from dataspace.transport.tokens import narrow
from dataspace.wire import packets as p
from index.patterns.text import parse, parse_pattern
from index.values.values import Map, Record, Value
from relay.store.errors import LogFailed
from server.cli.once.status import _status_lines
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.daemon import INSPECTED
from server.daemon.serve import serve
from tests.server.owners.test_foreign_names import Guest
from tests.server.streams.inside import inside

HERE = INSPECTED - {"connections"}
"""What a daemon over a directory has of it."""

ADMIN, READER, LOOKER = "the secret of the admin", "the secret of a reader", "the secret of a looker"


@pytest.fixture
async def url(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[str]:
    tables: list[tuple[str, dict[str, Value]]] = [
        (READER, {"observe": ("reading(_)",)}),
        (LOOKER, {"inspect": True, "observe": ("reading(_)",)}),
    ]
    keys = [Key(f"n{at}", secret, Rights.read(Map(table))) for at, (secret, table) in enumerate(tables)]
    config = Config(listen=("tcp:127.0.0.1:0",), data=tmp_path / "hidden", keys=(Key("admin", ADMIN), *keys))
    addresses = await nursery.start(serve, config)
    yield addresses[0]


async def test_the_status_has_paths_and_names_only_for_those_who_may_inspect(url: str) -> None:
    with trio.fail_after(10):
        async with (
            dataspace.connect(url, token=ADMIN) as admin,
            dataspace.connect(url, token=READER) as reader,
        ):
            await admin.request("acknowledge", Map({"reader": "nightly", "epoch": 0}))
            full, less = await admin.status(), await reader.status()
        assert set(full) >= HERE
        assert not set(less) & HERE
        assert set(full) - set(less) == HERE
        assert "nightly" in str(full)
        assert "hidden" in str(full)
        assert "nightly" not in str(less)
        assert "hidden" not in str(less)
        lines = dict(_status_lines(dict(less.pairs())))
        assert "(not shown to this token), up" in lines["process"]
        assert "in (not shown to this token)" in lines["disk"]
        async with dataspace.connect(url, token=LOOKER) as looker:
            assert set(await looker.status()) >= HERE


async def test_within_needs_a_right_to_observe(url: str) -> None:
    with trio.fail_after(10):
        asked = Map({"after": 0, "upto": 1, "changes": 1})
        async with dataspace.connect(url, token=READER) as reader:
            await reader.request("within", asked)
        blind = narrow(LOOKER, Map({"inspect": True}))
        async with dataspace.connect(url, token=blind) as space:
            for verb, said in (("within", asked), ("frontier", Map({"erased": (0, 1)}))):
                with pytest.raises(Refused, match="does not allow to read the log"):
                    await space.request(verb, said)


async def test_within_a_state_needs_the_right_to_its_pattern(url: str) -> None:
    with trio.fail_after(10):
        asked = {"as_of": 0, "low": 0, "changes": 1}
        async with dataspace.connect(url, token=ADMIN) as admin:
            assert await admin.request("within", Map({**asked, "pattern": parse_pattern("p($)")})) == 1 << 48
            for wrong in ({"as_of": "x"}, {"low": -1}, {"low": 1 << 48}, {"asserted": 3}):
                with pytest.raises(Refused, match="bad-request"):
                    pattern = {"pattern": parse_pattern("p($)")}
                    await admin.request("within", Map({**asked, **pattern, **wrong}))
        some = narrow(ADMIN, Map({"observe": ("q()",)}))
        async with dataspace.connect(url, token=some) as space:
            assert await space.request("within", Map({**asked, "pattern": parse_pattern("q($)")})) == 1 << 48
            with pytest.raises(Refused, match="not-allowed"):
                await space.request("within", Map({**asked, "pattern": parse_pattern("p($)")}))


async def test_the_drawing_of_the_index_has_only_what_may_be_observed(url: str) -> None:
    with trio.fail_after(10):
        async with (
            dataspace.connect(url, token=ADMIN) as admin,
            dataspace.connect(url, token=LOOKER) as looker,
        ):
            await admin.assert_(Record("secret", "a word that is secret"))
            await admin.assert_(Record("reading", "a word of a reading"))
            watched = ('secret("a word that is secret", $x)', 'reading("mine", $x)', "reading($x)")
            async with (
                admin.observe(parse_pattern(watched[0])),
                admin.observe(parse_pattern(watched[1])),
                admin.observe(parse_pattern(watched[2])),
            ):
                full = await admin.request("index", Map())
                assert isinstance(full, str) and "secret" in full and "withheld" not in full
                for form, comment in (
                    ("text", "withheld"),
                    ("mermaid", "%% withheld"),
                    ("dot", "// withheld"),
                ):
                    drawn = await looker.request("index", Map({"form": form}))
                    assert isinstance(drawn, str)
                    assert "secret" not in drawn and "a word" not in drawn
                    assert "mine" in drawn
                    assert drawn.splitlines()[-1].startswith(f"{comment}: 1 patterns"), drawn
                rows = await looker.request("index", Map({"form": "rows", "value": parse("secret(1, 2)")}))
                assert isinstance(rows, tuple) and rows[-1] == Map({"withheld": 1})
                assert "mine" in repr(rows) and "secret" not in repr(rows) and "a word" not in repr(rows)
                rows = await looker.request(
                    "index", Map({"form": "rows", "value": parse('reading("mine", 2)')})
                )
                assert isinstance(rows, tuple)
                passed = [each for each in rows if isinstance(each, Map) and each.get("passed")]
                assert any(each["kind"] == "leaf" and "mine" in str(each["text"]) for each in passed)
            with pytest.raises(Refused, match="the way of a value"):
                await looker.request("index", Map({"form": "dot", "value": 1}))
            with pytest.raises(Refused, match="form must be text, mermaid, dot or rows, got 'x'"):
                await looker.request("index", Map({"form": "x"}))


async def test_no_error_has_the_path_of_the_data_but_for_those_who_may_inspect(tmp_path: Path) -> None:
    keys = (Key("admin", ADMIN), Key("reader", READER, Rights.read(Map({"observe": True, "assert": True}))))
    with trio.fail_after(20):
        async with inside(tmp_path / "hidden", keys=keys) as made:
            texts = {}
            for name, token in (("~admin", ADMIN), ("~reader", READER)):
                guest = await Guest.arrive(made, token, name)
                made.hosted.commits.full = LogFailed(
                    f"cannot write {tmp_path}/hidden/log.sqlite: full", full=True
                )
                await guest.wire.say(p.Turn(1, "main", "", ((ASSERT, 1, Record("x", 1)),)))
                heard = await guest.wire.hear()
                assert isinstance(heard, p.Refusal) and heard.code == "disk-full"
                texts[token] = heard.text
                made.hosted.commits.full = None
        assert str(tmp_path) in texts[ADMIN]
        assert "hidden" not in texts[READER] and "(data)/log.sqlite: full" in texts[READER]
