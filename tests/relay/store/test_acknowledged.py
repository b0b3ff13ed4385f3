"""The mark survives any torn write and is never older than its last but one."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.store.ports import AcknowledgedMark
from relay.store.sqlite.acknowledged import AcknowledgedFile


def test_the_newest_mark_comes_back(tmp_path: Path) -> None:
    file = AcknowledgedFile(tmp_path / "acknowledged")
    assert file.mark == AcknowledgedMark()
    for epoch in range(1, 6):
        file.write(AcknowledgedMark(epoch, epoch, 65_536, bytes([epoch]) * 16))
    file.close()
    again = AcknowledgedFile(tmp_path / "acknowledged")
    assert again.mark == AcknowledgedMark(5, 5, 65_536, b"\5" * 16)
    again.write(AcknowledgedMark(6))
    again.close()
    assert AcknowledgedFile(tmp_path / "acknowledged").mark == AcknowledgedMark(6)


@pytest.mark.parametrize("torn_at", range(0, 72, 9))
def test_a_torn_write_leaves_the_mark_before(tmp_path: Path, torn_at: int) -> None:
    path = tmp_path / "acknowledged"
    file = AcknowledgedFile(path)
    file.write(AcknowledgedMark(1))
    before = path.read_bytes().ljust(1024, b"\0")
    file.write(AcknowledgedMark(2))
    file.close()
    after = path.read_bytes().ljust(1024, b"\0")
    first = next(at for at in range(1024) if before[at] != after[at])
    path.write_bytes(after[: first + torn_at] + before[first + torn_at :])
    assert AcknowledgedFile(path).mark.epoch == 1


def test_a_file_of_anything_else_is_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "acknowledged"
    path.write_bytes(b"\xff" * 2000)
    assert AcknowledgedFile(path).mark == AcknowledgedMark()
