"""Verification names what is altered, missing or out of order; collection deletes what nobody names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.archive import verifying, writing
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.manifest import ArchivedFile, Range
from relay.archive.merging import Merger
from relay.archive.orphans import collect
from relay.archive.verifying import ArchiveVerdict, verify_archive
from tests.relay.archive.histories import LET_GO, ArchivedLog, striking

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArchivedLog]:
    monkeypatch.setattr(writing, "CHAPTER", 2)
    made = ArchivedLog(tmp_path)
    for _ in range(18):
        made.write()
        made.write_silent()
    made.archive()
    yield made
    made.close()


def verdict(kept: ArchivedLog) -> ArchiveVerdict:
    return verify_archive(Archive(kept.objects, ArchivePlace("main", kept.log.identity)), deep=True)


def test_a_whole_archive_is_sound(kept: ArchivedLog) -> None:
    found = verdict(kept)
    assert (found.first, found.upto, found.changes, found.damages) == (1, 18, 54, ())
    assert len(kept.reader().manifest.chapters) >= 1
    kept.lose()
    kept.write(4)
    kept.archive()
    assert verdict(kept).damages == ()
    for _ in range(4):
        kept.write()
    kept.trim(retention=LET_GO)
    kept.write(4)
    kept.stop()
    kept.archive()
    found = verdict(kept)
    assert found.damages == () and len(found.missing) == 1


@pytest.mark.parametrize("kind", ["dsz", "json", "parquet"])
def test_what_is_altered_or_gone_is_named(kept: ArchivedLog, kind: str, tmp_path: Path) -> None:
    found = sorted((tmp_path / "archive").rglob(f"*.{kind}"))
    manifests = [each for each in found if each.parent.name == "manifest"]
    unsealed = manifests[-1:]  # nothing seals the newest manifest but what follows it
    for path in found:
        whole = path.read_bytes()
        for at in sorted({0, 5, len(whole) // 2, len(whole) - 20, len(whole) - 2}):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x04]) + whole[at + 1 :])
            assert verdict(kept).damages or path in unsealed, (path, at)
        path.write_bytes(whole[:-1])
        assert verdict(kept).damages or path in unsealed, path
        path.unlink()
        gone = path in (*manifests[:1], *manifests[-1:])  # old ones are deleted, and one may be the newest
        assert verdict(kept).damages or gone, path
        path.write_bytes(whole)
    assert verdict(kept).damages == ()


WRONG: list[Callable[[list[Any]], list[Any]]] = [
    lambda rows: rows[1:],
    lambda rows: rows * 2,
    lambda rows: [(*each[:2], each[2] + 1, *each[3:]) for each in rows],
    lambda rows: [(*each[:3], "delete", *each[4:]) for each in rows],
    lambda rows: [(*each[:4], "another", *each[5:]) for each in rows],
]
WRONG_INTERVALS: list[Callable[[list[Any]], list[Any]]] = [
    lambda rows: [(*each[:5], 1, each[6]) for each in rows],
    lambda rows: [(*each[:6], 19) for each in rows],
]


def planted_in(form: str, wrong: Callable[[list[Any]], list[Any]]) -> Callable[..., list[Any]]:
    """What reads the rows of columns or of states wrongly."""
    whole = verifying._rows_of

    def read(archive: Archive, file: ArchivedFile) -> list[Any]:
        rows = list(whole(archive, file))
        return wrong(rows) if file.form == form else rows

    return read


@pytest.mark.parametrize("is_merged", [False, True])
def test_columns_that_are_not_what_the_segments_say_are_named(
    kept: ArchivedLog, is_merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_merged:
        archive = kept.reader()
        assert archive.manifest.chapters and Merger(archive)._merge(archive.manifest, (0, 2))
        assert verdict(kept).damages == () and [*kept.reader().states()]
    for wrong in [*WRONG, *WRONG_INTERVALS * is_merged]:
        with monkeypatch.context() as patched:
            patched.setattr(verifying, "_rows_of", planted_in("columns", wrong))
            assert "are not what its segment says" in str(verdict(kept).damages)
    for wrong in [*WRONG, *WRONG_INTERVALS] * is_merged:
        with monkeypatch.context() as patched:
            patched.setattr(verifying, "_rows_of", planted_in("states", wrong))
            assert "the state after epoch" in str(verdict(kept).damages)
    assert verdict(kept).damages == ()


PLANTED: dict[str, Callable[[list[Range]], list[Range]]] = {
    "a range is left out": lambda ranges: [ranges[0], *ranges[2:]],
    "two ranges are exchanged": lambda ranges: [ranges[1], ranges[0], *ranges[2:]],
    "a range is there twice": lambda ranges: [ranges[0], *ranges],
    "the newest is left out": lambda ranges: ranges[:-1],
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_wrong_order_is_named(kept: ArchivedLog, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = kept.reader()
    planted = PLANTED[mistake](list(archive.ranges()))
    monkeypatch.setattr(archive, "ranges", lambda: iter(planted))
    assert verify_archive(archive).damages


def test_objects_that_no_manifest_names_go_when_they_are_old(
    kept: ArchivedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write(4)
    kept.fail("archive-before-manifest", striking(monkeypatch))
    kept.archive()
    before = verdict(kept)
    archive = kept.reader()
    done = collect(archive)
    assert (done.objects, done.manifests) == (0, 0), "it is young: its manifest may be on its way"
    for each in (tmp_path / "archive").rglob("*.*"):
        os.utime(each, (1, 1))
    done = collect(archive)
    assert done.objects == 1 + len(kept.reader().manifest.types) and done.bytes > 100
    done = collect(archive, versions=3)
    assert done.manifests == before.version - 3
    assert verdict(kept) == before
    kept.write(4)
    kept.archive()
    assert verdict(kept).damages == ()
