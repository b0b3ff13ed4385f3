"""Verification names what is altered, missing or out of order; collection deletes what nobody names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.archive import archiver as archiving
from relay.archive.archive import Archive, ArchivePlace
from relay.archive.columns import exact_changes
from relay.archive.manifest import Range
from relay.archive.orphans import collect
from relay.archive.verifying import ArchiveVerdict, verify_archive
from tests.relay.archive.histories import LET_GO, ArchivedLog

pytest.importorskip("zstandard", reason="the extra `archive` is not installed")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArchivedLog]:
    monkeypatch.setattr(archiving, "CHAPTER", 2)
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


def test_columns_that_are_not_what_the_segments_say_are_named(
    kept: ArchivedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = exact_changes
    for planted in (
        lambda content: list(whole(content))[1:],
        lambda content: [*whole(content)] * 2,
        lambda content: [(*each[:2], each[2] + 1, *each[3:]) for each in whole(content)],
        lambda content: [(*each[:4], "another") for each in whole(content)],
        lambda content: [(*each[:3], "delete", each[4]) for each in whole(content)],
    ):
        monkeypatch.setattr("relay.archive.verifying.exact_changes", planted)
        assert "are not what its segment says" in str(verdict(kept).damages)
    monkeypatch.setattr("relay.archive.verifying.exact_changes", whole)
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
    kept.fail("archive-before-manifest", lambda strike: monkeypatch.setattr(archiving, "reach", strike))
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
