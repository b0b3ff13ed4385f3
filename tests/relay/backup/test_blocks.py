"""A backup in a store is whole or not there, whatever was written in part; and what was altered is found."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from dataspace.errors import UsageError
from relay.backup import blocks
from relay.backup.backup import back_up, damages, of_directory
from relay.backup.blocks import fetch, newest, push, wanted
from relay.backup.copies import CopyPace
from relay.backup.logs import NotThisLog
from relay.log.log import Log
from relay.objects.objects import StoreFailed
from relay.objects.remote import RemoteObjects
from relay.store.errors import LogDamaged
from tests.relay.log.histories import append, epoch, flight

pytest.importorskip("fsspec", reason="the extra `remote` is not installed")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8192)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of a store, empty."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> RemoteObjects:
    return RemoteObjects(f"local://{place}")


class Life:
    """A log that grows, and its backup in a directory."""

    def __init__(self, folder: Path) -> None:
        self.backup = folder / "backup"
        self._data = folder / "data"
        self._epochs = 0

    def grow(self, count: int) -> Path:
        """Adds epochs, and brings the backup up to date."""
        log = Log.open(self._data)
        for number in range(self._epochs + 1, self._epochs + count + 1):
            append(log, epoch(number, flight(number)))
        log.close()
        self._epochs += count
        back_up(of_directory(self._data), self.backup, CopyPace())
        return self.backup


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    files = [each for each in folder.rglob("*") if each.is_file() and each.name != "lock"]
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in files}


def fetched(store: RemoteObjects, folder: Path) -> dict[str, bytes]:
    fetch(wanted(store), store, folder, CopyPace())
    assert not list(damages(folder))
    return contents(folder)


def test_what_is_fetched_is_what_was_pushed_and_only_what_is_new_is_written(
    life: Life, store: RemoteObjects, place: Path, tmp_path: Path
) -> None:
    backup = life.grow(400)
    first = push(backup, store, CopyPace())
    assert first.blocks > 8
    assert fetched(store, tmp_path / "fetched") == contents(backup)
    assert push(backup, store, CopyPace()).blocks == 0, "nothing has changed"
    life.grow(3)
    second = push(backup, store, CopyPace())
    assert 0 < second.blocks < first.blocks / 2
    assert fetched(store, tmp_path / "fetched") == contents(backup), "over what was fetched before"
    (index,) = place.glob("manifest-*")
    named = {block for file in json.loads(index.read_bytes())["files"] for block in file["blocks"]}
    assert {each.name for each in place.iterdir()} == {f"block-{each}" for each in named} | {index.name}


def test_parts_that_an_interrupted_run_left_are_not_taken_for_whole(
    life: Life, store: RemoteObjects, place: Path, tmp_path: Path
) -> None:
    backup = life.grow(50)
    push(backup, store, CopyPace())
    before = contents(backup)
    life.grow(50)
    body = b'{"format": 1'
    (place / f"manifest-00000002-{sha256(body + b'}').hexdigest()}.json").write_bytes(body)
    for content in blocks._contents(backup / "log.sqlite"):
        block = place / f"block-{sha256(content).hexdigest()}"
        if not block.exists():
            block.write_bytes(content[:100])
    assert fetched(store, tmp_path / "fetched") == before
    push(backup, store, CopyPace())
    assert fetched(store, tmp_path / "fetched") == contents(backup)
    assert len(list(place.glob("manifest-*"))) == 1


def test_what_was_altered_or_is_gone_is_named(
    life: Life, store: RemoteObjects, place: Path, tmp_path: Path
) -> None:
    push(life.grow(50), store, CopyPace())
    victim = max(place.glob("block-*"), key=lambda each: each.stat().st_size)
    whole = victim.read_bytes()
    victim.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(LogDamaged, match=r"block .* of .* was altered"):
        fetched(store, tmp_path / "fetched")
    assert not (tmp_path / "fetched" / "backup.json").exists(), "not to be taken for a backup"
    victim.unlink()
    with pytest.raises(StoreFailed, match=f"cannot read {victim.name} of local://"):
        fetched(store, tmp_path / "fetched")
    victim.write_bytes(whole)
    assert fetched(store, tmp_path / "fetched") == contents(life.backup)


def test_another_log_and_another_writer_are_refused(
    life: Life, store: RemoteObjects, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = life.grow(20)
    push(backup, store, CopyPace())
    with pytest.raises(NotThisLog, match=r"holds a backup of the log .*; back up to another URL"):
        push(Life(tmp_path / "other").grow(5), store, CopyPace())
    life.grow(20)
    copied = tmp_path / "copied"
    shutil.copytree(place, copied)
    push(backup, RemoteObjects(f"local://{copied}"), CopyPace())

    def beside(name: str) -> None:
        """Another writer finishes first."""
        if name == "push-before-manifest":
            for each in copied.glob("manifest-*"):
                shutil.copy(each, place / each.name.replace("00000002", "00000009"))

    monkeypatch.setattr(blocks, "reach", beside)
    with pytest.raises(StoreFailed, match="let one backup at a time write there"):
        push(backup, store, CopyPace())


def test_objects_that_may_not_be_deleted_do_no_harm(
    life: Life, store: RemoteObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(life.grow(20), store, CopyPace())

    def refuse(_names: object) -> None:
        raise StoreFailed("cannot delete from local://: denied")

    monkeypatch.setattr(store, "delete", refuse)
    done = push(life.grow(20), store, CopyPace())
    assert "are still there: cannot delete" in done.kept
    assert fetched(store, tmp_path / "fetched") == contents(life.backup)


def test_a_manifest_reaches_nothing_outside_its_directory(
    store: RemoteObjects, place: Path, life: Life, tmp_path: Path
) -> None:
    push(life.grow(5), store, CopyPace())
    (index,) = place.glob("manifest-*")
    for path in ("../escaped", "/escaped", ""):
        body = json.loads(index.read_bytes())
        body["files"][0]["path"] = path
        text = json.dumps(body).encode()
        (place / f"manifest-00000005-{sha256(text).hexdigest()}.json").write_bytes(text)
        with pytest.raises(UsageError, match="which is not in its directory"):
            fetch(wanted(store), store, tmp_path / "fetched", CopyPace())


def test_a_format_of_another_version_is_refused(store: RemoteObjects, place: Path) -> None:
    body = json.dumps({"format": 7, "block_bytes": 8192, "number": 1, "identity": "", "files": []}).encode()
    (place / f"manifest-00000001-{sha256(body).hexdigest()}.json").write_bytes(body)
    with pytest.raises(UsageError, match=r"has format 7 .* this program reads format 1"):
        newest(store)


def test_a_password_in_a_url_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        RemoteObjects("unheard-of://me:geheim@there/x")
    assert "geheim" not in str(refused.value)
    with pytest.raises(StoreFailed, match="cannot write to local://"):
        RemoteObjects(f"local://{tmp_path}/nowhere").probe()
