"""A failure in the end of one owner ends neither the daemon nor keeps others from ending."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dataspace.errors import InternalError
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.handles import Handles
from index.values.values import Record
from relay.log.log import Log
from relay.space_registers import space_registers
from relay.store.errors import LogFailed
from server.cluster.homes import home_of
from server.config.model import Config
from server.daemon.daemon import Daemon
from server.spaces.space import HostedSpace
from server.topics.part import TOPICS

OWNERS = ["session:1", "session:2", "session:3"]


class _Broken(Handles):
    """Claims that cannot be read: what a defect would leave."""

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("broken claims")


class _BrokenOnce(Handles):
    """Claims that can be read the second time."""

    has_raised = False

    def __iter__(self) -> Iterator[int]:
        if not self.has_raised:
            self.has_raised = True
            raise RuntimeError("broken claims")
        return super().__iter__()


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[HostedSpace]:
    """The space of a daemon that does not run, with three owners of a fact each."""
    config = Config(listen=(), data=tmp_path)
    (settings,) = config.all_spaces()
    with_log = Log.open(tmp_path, registers=space_registers)
    daemon = Daemon(config, [(settings, with_log)], home_of(config))
    for at, owner in enumerate(OWNERS):
        daemon.main.commit(owner, [(ASSERT, at, Record("p", at))])
    yield daemon.main
    daemon.main.leading.staging.close()
    daemon.parts[TOPICS].durable.writer.journal.close()
    with_log.close()


async def test_an_owner_that_cannot_be_ended_is_reported_and_all_others_end(
    hosted: HostedSpace, caplog: pytest.LogCaptureFixture
) -> None:
    whole = hosted.space._claims[OWNERS[1]]
    hosted.space._claims[OWNERS[1]] = _Broken(whole.items())
    hosted.end_owners(OWNERS)
    assert [*hosted.space.index.values()] == [Record("p", 1)]
    assert hosted.space.owners() == [OWNERS[1]]
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [
        True
    ] * 2
    assert "session:2 could not be ended" in caplog.text and "its 1 facts" in caplog.text
    assert hosted.space.damage is hosted.commits.failure is None
    hosted.space._claims[OWNERS[1]] = whole
    hosted.end_owners(OWNERS)  # it is all as before, and can be tried again
    assert not len(hosted.space.index)


async def test_an_owner_whose_end_fails_once_has_ended(
    hosted: HostedSpace, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.space._claims[OWNERS[1]] = _BrokenOnce(hosted.space._claims[OWNERS[1]].items())
    hosted.end_owners([OWNERS[1]])
    assert hosted.space.owners() == [OWNERS[0], OWNERS[2]] and len(caplog.records) == 1


async def test_owners_that_end_soon_end_in_one_epoch_before_the_next_turn(hosted: HostedSpace) -> None:
    epoch = hosted.space.epoch
    for owner in OWNERS[:2]:
        hosted.end_soon([owner])
    assert hosted.space.epoch == epoch and len(hosted.space.index) == 3
    turn = hosted.commit(OWNERS[2], [(ASSERT, 9, Record("p", 9))])
    assert turn.number == epoch + 2
    assert [*hosted.space.index.values()] == [Record("p", 2), Record("p", 9)]
    hosted.end_due()
    assert hosted.space.epoch == turn.number


async def test_one_that_cannot_be_ended_leaves_none_of_those_that_end_with_it(
    hosted: HostedSpace, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.space._claims[OWNERS[0]] = _Broken(hosted.space._claims[OWNERS[0]].items())
    for owner in OWNERS:
        hosted.end_soon([owner])
    hosted.commit("session:4", [(ASSERT, 4, Record("p", 4))])
    assert [*hosted.space.index.values()] == [Record("p", 0), Record("p", 4)]
    assert "session:1 could not be ended" in caplog.text


async def test_claims_that_the_index_lacks_are_there_again_when_their_end_has_failed(
    hosted: HostedSpace, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.space.index.remove(Record("p", 1))
    hosted.end_owners(OWNERS)
    assert not hosted.space.owners() and not len(hosted.space.index)
    hosted.space.index.check()
    assert "could not be ended together" in caplog.text


async def test_a_space_that_cannot_be_restored_ends_the_daemon(
    hosted: HostedSpace, caplog: pytest.LogCaptureFixture
) -> None:
    hosted.space.index.remove(Record("p", 1))
    hosted.space._claims["session:4"] = _Unreadable()
    hosted.end_owners([OWNERS[1]])
    assert hosted.space.damage is not None
    assert "could not be undone, the daemon ends" in caplog.text
    with pytest.raises(LogFailed, match="space main is damaged"):
        await hosted.commits.run()
    with pytest.raises(LogFailed):
        hosted.commit(OWNERS[0], [(ASSERT, 7, 7)])
    with pytest.raises(InternalError, match="could not be undone"):
        hosted.space.commit(OWNERS[0], [(ASSERT, 7, 7)], 0)


class _Unreadable(Handles):
    """Claims of which the values cannot be read."""

    def values(self):  # type: ignore[no-untyped-def]  # never returns
        raise RuntimeError("broken claims")
