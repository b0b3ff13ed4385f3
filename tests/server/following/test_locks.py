"""What rewrites a log waits for followers to end, and they for it; a stand-by waits for its leader."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from relay.store.lock import DataInUse, followed, locked, unfollowed
from server.cli.main import main
from server.cluster.directory.home import DirectoryHome
from server.config.model import Config, Follow
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


async def test_a_stand_by_that_waits_no_more_takes_no_lock(tmp_path: Path) -> None:
    home = DirectoryHome(Config(("tcp:127.0.0.1:0",), tmp_path, follow=Follow(tmp_path, stand_by=True)))
    with ExitStack() as held, ExitStack() as again:
        with locked(tmp_path):
            for _ in range(50):  # more than there are threads
                with trio.move_on_after(0.001):
                    await home.wait_turn(held, lambda: ["main"])
        with trio.fail_after(20):
            assert await home.wait_turn(again, lambda: ["main"]) == ["main"]
        with pytest.raises(DataInUse), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass
