"""What rewrites a log in place waits for followers to end, and the other way around."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.cli.main import main
from server.daemon.lock import DataInUse, followed, unfollowed
from tests.server.processes import DaemonProcess, follower


def test_any_number_may_follow_and_one_alone_rewrites(tmp_path: Path) -> None:
    with followed(tmp_path), followed(tmp_path):
        with pytest.raises(DataInUse, match="followers read it"), unfollowed(tmp_path):
            pass
    with unfollowed(tmp_path):
        with pytest.raises(DataInUse, match="being rewritten"), followed(tmp_path):
            pass
        with pytest.raises(DataInUse), unfollowed(tmp_path):
            pass


@pytest.mark.slow
def test_compact_and_restore_refuse_a_directory_that_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    leader, reader = DaemonProcess(data), follower(data)
    leader.start()
    reader.start()
    try:
        assert main(["backup", "--data", str(data), str(backup)]) == 0, "a backup changes nothing"
        leader.stop()
        assert main(["log", "compact", "--data", str(data)]) == 1
        assert "followers read it; end them first" in capsys.readouterr().err
        assert main(["restore", str(backup), str(data)]) != 0
    finally:
        reader.stop()
    assert main(["log", "compact", "--data", str(data)]) == 0
