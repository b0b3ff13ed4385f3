"""What the keeper notes in a log survives a disk without room, and a disk that fails ends the daemon."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from relay.log.log import Log
from relay.store.errors import LogFailed
from server.archiving.keeper import ArchiveKeeper
from server.config.model import Archiving, Config


@pytest.mark.parametrize("full", [True, False])
async def test_a_full_disk_is_waited_for(tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = ArchiveKeeper(Config(data=tmp_path, archive=Archiving(tmp_path / "archive")), list)
    with closing(Log.open(tmp_path)) as log:
        with monkeypatch.context() as patched:

            def fails(**_: object) -> None:
                raise LogFailed("no room", full=full)

            patched.setattr(log, "_put", fails)
            if full:
                await keeper._note(log, 7, 3, "a")
            else:
                with pytest.raises(LogFailed, match="no room"):
                    await keeper._note(log, 7, 3, "a")
        assert (log.archived, log.archived_segment) == (0, 0)
        await keeper._note(log, 7, 3, "a")
        assert (log.archived, log.archived_segment, log.archived_in) == (7, 3, "a")
