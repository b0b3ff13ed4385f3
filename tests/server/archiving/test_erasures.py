"""Erasures that a daemon is asked for are done once each, those that wait together, wherever it is killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from dataspace.client.connect import connect
from dataspace.codec import pack
from dataspace.errors import Refused
from dataspace.kernel.changes import Epoch
from index.patterns.text import parse_pattern
from index.values.values import Map, Record, Value
from relay.archive import archiver, columns
from relay.archive.verifying import verify_archive
from relay.log.log import Log
from server.archiving import child
from server.archiving.child import Orders, orders_of
from server.archiving.erasures import MOST, ErasureOrder, Erasures
from server.config.model import Config
from server.config.rights import Key, Rights
from server.daemon.serve import serve
from tests.relay.archive.histories import ArchivedLog, Killed, striking
from tests.relay.log.histories import append

pytest.importorskip("pyarrow.parquet", reason="the extra `archive` is not installed")

HOUR = 3600.0
P17, SEEN = parse_pattern('person("p17", _)'), parse_pattern("seen($)")
AFTER = 10**9


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ArchivedLog]:
    """A log of two persons who came and went, of whom one still holds, and what was seen."""
    made = ArchivedLog(tmp_path)
    for name in ("p17", "p18"):
        made.turn([Record("person", name, 1)])
        made.turn(sent=[Record("seen", name)])
    made.turn(removed=[Record("person", "p17", 1)])
    yield made
    made.close()


def order(number: int, pattern: Any, by: str = "me", space: str = "main") -> ErasureOrder:
    return ErasureOrder(number, space, pack(pattern).hex(), AFTER, by)


def orders(kept: ArchivedLog, erasures: Sequence[ErasureOrder]) -> Orders:
    """Orders as the process reads them."""
    place = str(kept.data.parent / "archive")
    said = Orders(str(kept.data), False, place, {"main": kept.log.term}, HOUR, erasures=erasures)
    return orders_of(json.dumps(asdict(said)))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """What the process has said of erasures since the last call."""

    def found() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [each for each in lines if "erasure" in each or "error" in each]

    return found


def test_erasures_that_wait_are_done_together_and_once(
    kept: ArchivedLog, said: Callable[[], list[dict[str, Any]]]
) -> None:
    keeper = child._Archivers()
    keeper.obey(orders(kept, [order(1, P17), order(2, SEEN, "you"), order(3, P17, space="other")]))
    keeper.archive_due()
    one, two = said()
    assert (one["erasure"], one["counts"]["rows"], one["counts"]["holding"]) == (1, 2, 0)
    assert (two["erasure"], two["counts"]["rows"], two["counts"]["upto"]) == (2, 2, 5)
    archive = kept.reader()
    assert archive.upto == archive.erased == 5, "what was not due to be archived was archived first"
    assert [[each.by for each in of.erasures] for of in archive.ranges()] == [["me, you"]]
    version = archive.manifest.version
    keeper.obey(orders(kept, [order(2, SEEN, "you"), order(3, P17, space="other")]))
    keeper.archive_due()
    assert said() == [] and kept.reader().manifest.version == version
    keeper.obey(orders(kept, [order(4, SEEN)]))
    keeper.archive_due()
    assert [each["counts"]["rows"] for each in said()] == [0]
    assert verify_archive(kept.reader(), deep=True).damages == ()
    keeper.close()


@pytest.mark.parametrize("point", ["erase-before-manifest", "erase-after-manifest"])
def test_a_killed_process_is_told_again(
    kept: ArchivedLog, point: str, said: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = striking(monkeypatch)

    def strike(name: str) -> None:
        if name == point:
            raise Killed(point)

    patch(strike)
    with pytest.raises(Killed):
        keeper = child._Archivers()
        keeper.obey(orders(kept, [order(1, P17)]))
        keeper.archive_due()
    assert said() == []
    patch(lambda _: None)
    again = child._Archivers()
    again.obey(orders(kept, [order(1, P17)]))
    again.archive_due()
    [answer] = said()
    assert answer["erasure"] == 1 and answer["counts"]["upto"] == 5
    archive = kept.reader()
    assert sum([each.rows for of in archive.ranges() for each in of.erasures]) == 2
    assert verify_archive(archive, deep=True).damages == ()
    for each in (keeper, again):
        each.close()


@pytest.mark.parametrize("count", range(1, 5))
def test_a_process_that_nobody_tells_again_finishes_what_was_begun(
    kept: ArchivedLog, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was killed as well, and has forgotten who asked; the archive says what waits."""
    kept.archive()
    patch, left = striking(monkeypatch), count

    def strike(name: str) -> None:
        nonlocal left
        left -= name in ("erase-after-manifest", "erase-before-delete")
        if not left:
            raise Killed(name)

    patch(strike)
    with pytest.raises(Killed):
        keeper = child._Archivers()
        keeper.obey(orders(kept, [order(1, P17)]))
        keeper.archive_due()
    patch(lambda _: None)
    archive = kept.reader()
    assert "objects" in verify_archive(archive).waiting or count > 2
    again = child._Archivers()
    again.obey(orders(kept, []))
    again.archive_due()
    for each in (keeper, again):
        each.close()
    verdict = verify_archive(kept.reader(), deep=True)
    assert (verdict.damages, verdict.waiting) == ((), "")
    assert not {each.path for each in kept.reader().manifest.retired} & {
        str(each.relative_to(kept.data.parent / "archive" / archive.place.folder))
        for each in (kept.data.parent / "archive").rglob("*.*")
    }


def test_what_cannot_be_erased_is_answered_and_a_store_that_is_away_is_waited_for(
    kept: ArchivedLog, said: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "PAUSES", (0.0, 0.0))
    kept.archive()
    [segments] = (kept.data.parent / "archive").rglob("*.dsz")
    whole = segments.read_bytes()
    keeper = child._Archivers()
    keeper.obey(orders(kept, [order(1, P17)]))
    segments.write_bytes(whole[:9] + b"?" + whole[10:])
    keeper.archive_due()
    [answer] = said()
    assert answer["erasure"] == 1 and "was altered" in answer["error"]
    segments.write_bytes(whole)
    manifests = segments.parent.parent / "manifest"
    manifests.rename(manifests.with_name("away"))
    keeper.obey(orders(kept, [order(2, P17)]))
    keeper.archive_due()
    assert ["has no manifest" in each["error"] for each in said()] == [True]
    manifests.with_name("away").rename(manifests)
    keeper.archive_due()
    [answer] = said()
    assert answer["erasure"] == 2 and answer["counts"]["rows"] == 2
    keeper.close()


def test_an_unexpected_error_stops_one_space_alone_and_leaves_no_objects(
    kept: ArchivedLog, said: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = kept.data / "spaces" / "other"
    other.mkdir(parents=True)
    with closing(Log.open(other)) as log:
        append(log, Epoch(1, 10, [Record("fine", 1)], (), (), (), None, 0, False))
    monkeypatch.setattr(child, "PAUSES", (0.0, 0.0))
    made = columns.columns_of

    def columns_of(segments: Any, types: Any) -> Any:
        found, settled = made(segments, types)
        if any(each.label == "seen" for each in found):
            raise OverflowError("a column that no reader has seen")
        return found, settled

    monkeypatch.setattr(archiver, "columns_of", columns_of)
    keeper = child._Archivers()
    keeper.obey(
        replace(orders(kept, [order(1, P17)]), spaces={"main": kept.log.term, "other": log.term}, seconds=0.0)
    )
    for _ in range(3):
        keeper.archive_due()
    assert {each.get("error") for each in said()} == {"OverflowError: a column that no reader has seen"}
    place = kept.data.parent / "archive"
    assert len([*(place / "main").rglob("*.dsz")]) == 0, "what no manifest names is deleted"
    assert len([*(place / "other").rglob("*.dsz")]) == 1, "the other space is archived"
    monkeypatch.setattr(archiver, "columns_of", made)
    keeper.archive_due()
    assert [each["counts"]["rows"] for each in said()] == [2]
    assert verify_archive(kept.reader(), deep=True).damages == ()
    keeper.close()


def test_what_cannot_be_merged_stops_no_archiving(
    kept: ArchivedLog, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def heard() -> list[tuple[int, bool]]:
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(each["upto"], "was altered" in each["merge_error"]) for each in lines]

    monkeypatch.setattr(child, "COLLECT_SECONDS", 0.0)
    kept.archive()
    kept.turn(sent=[Record("seen", "p19")])
    [segments] = (kept.data.parent / "archive").rglob("*.dsz")
    whole = segments.read_bytes()
    segments.write_bytes(whole[:9] + b"?" + whole[10:])
    keeper = child._Archivers()
    keeper.obey(replace(orders(kept, []), seconds=0.0))
    for number in range(6):
        kept.turn(sent=[Record("seen", number)])
        keeper.archive_due()
    said = heard()
    assert (said[0], said[-1]) == ((5, False), (12, True)), "it goes on, and says why nothing is merged"
    segments.write_bytes(whole)
    keeper.archive_due()
    assert heard() == [(12, False)]
    assert next(kept.reader().ranges()).merged > 1
    keeper.close()


async def test_who_asks_the_same_again_waits_for_the_same_erasure() -> None:
    erasures = Erasures()
    ask = (erasures.ask, "main", P17, AFTER, "me")
    assert await ask[0](*ask[1:], wait=0) is None and await ask[0](*ask[1:], wait=0) is None
    assert await erasures.ask("main", SEEN, AFTER, "me", 0) is None
    assert (erasures.waiting("main"), erasures.waiting("other")) == (2, 0)
    one, two = erasures.orders(["main"])
    assert (one, two) == (order(one.number, P17), order(two.number, SEEN))
    assert erasures.orders(["other"]) == []
    found: list[object] = []

    async def wait() -> None:
        found.append(await erasures.ask("main", P17, AFTER, "me", 60))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            erasures.on_answer({"erasure": one.number, "counts": {"rows": 2}})
    assert found == [{"rows": 2}, {"rows": 2}]
    erasures.on_answer({"erasure": two.number, "error": "it is broken"})
    assert erasures.orders(["main"]) == [] and erasures.waiting("main") == 0
    with pytest.raises(Refused, match="erasure-failed: it is broken"):
        await erasures.ask("main", SEEN, AFTER, "me", 0)
    assert await erasures.ask("main", SEEN, AFTER, "me", 0) is None, "it is a new one"


async def test_erasures_that_wait_are_bounded() -> None:
    erasures = Erasures()
    for before in range(MOST):
        assert await erasures.ask("main", P17, before, "me", 0) is None
    with pytest.raises(Refused, match="256 erasures wait"):
        await erasures.ask("main", P17, MOST, "me", 0)
    erasures.on_answer({"erasure": erasures.orders(["main"])[0].number, "counts": {}})
    assert await erasures.ask("main", P17, MOST, "me", 0) is None


async def test_only_an_administrator_may_erase_and_only_what_is_archived(tmp_path: Path) -> None:
    admin = Key("operator", "the secret of the operator")
    reader = Key("reader", "the secret of a reader!!", Rights.read(Map({"observe": True, "inspect": True})))
    asked: dict[str, Value] = {"pattern": P17, "before": AFTER}
    for keys in ((admin, reader), ()):
        async with trio.open_nursery() as nursery:
            config = Config(("tcp:127.0.0.1:0",), tmp_path / str(len(keys)), keys=keys)
            addresses: list[str] = await nursery.start(serve, config)
            url = addresses[0].replace(":", "://", 1)
            for key in keys[1:]:
                async with connect(url, token=key.secret) as space:
                    with pytest.raises(Refused, match="'reader' does not allow to erase the past"):
                        await space.request("erase", Map(asked))
            async with connect(url, token=admin.secret if keys else None) as space:
                with pytest.raises(Refused, match="no-archive: space main is not archived here"):
                    await space.request("erase", Map(asked))
                with pytest.raises(Refused, match="pattern must be a pattern, got nothing"):
                    await space.request("erase", Map({"before": 1}))
                with pytest.raises(Refused, match="a capture has a name"):
                    await space.request("erase", Map({**asked, "pattern": Record("$", 1, 2, 3, 4, 5)}))
            nursery.cancel_scope.cancel()


def test_orders_are_read_as_they_were_written(kept: ArchivedLog) -> None:
    said = orders(kept, [order(7, P17)])
    assert said == replace(said, erasures=[order(7, P17)])
