"""Stores of objects do the same in a directory and at a URL, and create an object once."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

import pytest

from relay.objects.objects import NoSuchObject, Objects, StoreFailed
from relay.objects.opening import check_creation, open_objects

pytest.importorskip("fsspec", reason="the extra `remote` is not installed")


@pytest.fixture(params=["directory", "file://", "local://", "memory://"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return open_objects(tmp_path / "store")
    if request.param == "local://":
        (tmp_path / "store" / "folder" / "deeper").mkdir(parents=True)  # which this backend does not make
    at = uuid.uuid4().hex if request.param == "memory://" else tmp_path / "store"
    return open_objects(f"{request.param}{at}")


def test_what_was_put_is_there_until_it_is_deleted(objects: Objects) -> None:
    assert objects.listed("folder") == {}
    objects.put("folder/one", b"first")
    objects.put("folder/deeper/two", b"0123456789")
    objects.put("folder/one", b"another")
    assert {name: each.size for name, each in objects.listed("folder").items()} == {"one": 7}
    assert objects.folders("folder") == ["deeper"]
    assert objects.get("folder/one") == b"another"
    assert objects.get_part("folder/deeper/two", 3, 6) == b"345"
    assert objects.get_part("folder/deeper/two", 0, 10) == b"0123456789"
    objects.delete(["folder/one", "folder/one", "folder/never"])
    assert objects.listed("folder") == {}
    with pytest.raises(NoSuchObject, match="there is no"):
        objects.get("folder/one")


def test_it_was_written_now(objects: Objects, tmp_path: Path) -> None:
    objects.put("folder/one", b"first")
    beside = tmp_path / "beside"
    beside.touch()
    assert abs(objects.listed("folder")["one"].written - beside.stat().st_mtime) < 60


def test_an_object_is_created_once(objects: Objects) -> None:
    assert objects.create("folder/one", b"first")
    assert not objects.create("folder/one", b"second")
    assert objects.get("folder/one") == b"first"
    objects.delete(["folder/one"])
    assert objects.create("folder/one", b"second")
    assert [*objects.listed("folder")] == ["one"]


def test_of_many_creations_at_once_one_succeeds(tmp_path: Path) -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(len(made))

    def create(me: int) -> None:
        objects = open_objects(tmp_path / "store")
        start.wait()
        for number in range(40):
            if objects.create(f"folder/{number}", f"{me}".encode()):
                made[me].append(f"{number}")

    threads = [threading.Thread(target=create, args=(me,)) for me in range(len(made))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(name for names in made for name in names) == sorted(map(str, range(40)))
    objects = open_objects(tmp_path / "store")
    assert all(objects.get(f"folder/{name}") == f"{me}".encode() for me in range(8) for name in made[me])


def test_a_store_that_creates_twice_is_refused(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    check_creation(objects)
    assert not objects.listed()

    def ignores_the_condition(name: str, content: bytes) -> bool:
        objects.put(name, content)
        return True

    monkeypatch.setattr(
        type(objects), "create", lambda _, name, content: ignores_the_condition(name, content)
    )
    with pytest.raises(StoreFailed, match="creates an object that exists already"):
        check_creation(objects)
    assert not objects.listed()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_the_directory_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o500)
    with pytest.raises(StoreFailed, match=r"cannot write .*one: Permission denied"):
        open_objects(tmp_path / "store").put("one", b"first")


def test_an_interrupted_write_leaves_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = open_objects(tmp_path / "store")
    objects.put("folder/one", b"first")

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    for write in (objects.put, objects.create):
        with pytest.raises(StoreFailed, match=r"cannot write .*folder/two: No space left"):
            write("folder/two", b"second")
    assert [*objects.listed("folder")] == ["one"]
    assert [each.name for each in (tmp_path / "store" / "folder").iterdir()] == ["one"]
