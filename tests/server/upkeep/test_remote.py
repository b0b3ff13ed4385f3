"""``dataspace backup URL`` and ``restore URL``: through kills, from nothing, and what is refused at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server.cli.main import main
from tests.server.upkeep.test_copies import facts_at, run
from tests.upgrade.test_kept import LAST, unpacked

pytest.importorskip("fsspec", reason="the extra `remote` is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a daemon left that was killed."""
    return unpacked("0.1.0", tmp_path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return f"local://{tmp_path}/store"


def test_a_backup_that_is_killed_is_continued_and_so_is_a_restore(
    data: Path, url: str, tmp_path: Path
) -> None:
    target = tmp_path / "restored"
    assert "fault reached: push-block" in run("backup", url, "--data", data, fault="push-block:2").stderr
    assert main(["restore", url, str(target)]) == 2, "nothing is whole there"
    assert main(["backup", url, "--data", str(data), "--rate", "1GiB"]) == 0
    assert "fault reached: fetch-block" in run("restore", url, target, fault="fetch-block:3").stderr
    assert not target.exists()
    assert main(["restore", url, str(target), "--at", "4"]) == 0
    assert facts_at(target, 4) == facts_at(data, 4)
    assert not target.with_name("restored.fetched").exists()
    assert main(["log", "verify", "--data", str(data.with_name("data.backup"))]) == 0


def test_where_the_backup_is_in_the_store_alone_it_is_fetched_and_goes_on(
    data: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", url, "--data", str(data), "--via", str(tmp_path / "first")]) == 0
    capsys.readouterr()
    assert main(["backup", url, "--data", str(data), "--via", str(tmp_path / "second")]) == 0
    said = capsys.readouterr().out
    assert f"epochs 1 to {LAST}" in said and "(0 segments added)" in said
    assert main(["restore", str(tmp_path / "second"), str(tmp_path / "restored")]) == 0
    assert facts_at(tmp_path / "restored", LAST) == facts_at(data, LAST)


def test_what_cannot_be_restored_is_kept_as_it_was_fetched(
    data: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", url, "--data", str(data)]) == 0
    assert main(["restore", url, str(tmp_path / "restored"), "--at", "1000000"]) == 2
    assert "what was fetched is kept in" in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "restored.fetched"), str(tmp_path / "restored")]) == 0


def test_a_directory_of_something_else_is_not_fetched_into(
    data: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", url, "--data", str(data), "--via", str(tmp_path / "first")]) == 0
    for name, words in (
        ("restored", ["restore", url, str(tmp_path / "restored")]),
        ("second", ["backup", url, "--data", str(data), "--via", str(tmp_path / "second")]),
    ):
        letter = tmp_path / f"{name}.fetched" / "letters" / "first"
        letter.parent.mkdir(parents=True)
        letter.write_text("Dear Alice")
        assert main(words) == 2
        assert "has something else in it" in capsys.readouterr().err
        assert letter.read_text() == "Dear Alice"
        assert not (tmp_path / name).exists()


def test_a_url_of_a_file_is_a_directory(data: Path, tmp_path: Path) -> None:
    assert main(["backup", f"file://{tmp_path}/a%20backup", "--data", str(data)]) == 0
    assert main(["restore", str(tmp_path / "a backup"), str(tmp_path / "once")]) == 0
    assert main(["restore", f"file://{tmp_path}/a%20backup", str(tmp_path / "again")]) == 0


def test_what_is_refused_is_refused_before_anything_is_copied(
    data: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, code, text in (
        (["backup", f"local://{tmp_path}/none"], 1, "cannot write to local://"),
        (
            ["backup", "unheard-of://bucket/ds"],
            2,
            "Protocol not known: unheard-of; give a directory or a URL",
        ),
        (["backup", "file://there/ds"], 2, "write file:///backup/ds"),
        (
            ["backup", str(tmp_path / "new"), "--via", str(tmp_path / "via")],
            2,
            "--via is for a backup to a URL",
        ),
    ):
        try:
            found = main([*words, "--data", str(data)])
        except SystemExit as end:
            found = int(str(end.code))
        assert (found, text in capsys.readouterr().err) == (code, True), words
    assert main(["restore", url, str(tmp_path / "new")]) == 2
    assert "is no backup: there is no manifest in it" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "store"]


def test_without_the_extra_a_url_is_refused_and_one_of_a_file_needs_none(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("fsspec", "fsspec.core"):
        monkeypatch.setitem(sys.modules, name, None)  # as where it is not installed
    assert main(["backup", "s3://bucket/ds", "--data", str(data)]) == 2
    assert "pip install 'dataspace-server[remote]'" in capsys.readouterr().err
    assert main(["backup", f"file://{tmp_path}/backup", "--data", str(data)]) == 0
