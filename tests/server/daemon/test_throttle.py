"""No peer fills the log: equal warnings are written a few times, then counted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from dataspace.wire import packets as p
from dataspace.wire.features import Wanted
from server.config.model import Config, Limits
from server.config.rights import Key
from server.daemon.serve import serve
from server.logs import KINDS, LINES, MOST, NAMED, WINDOW, Throttle
from tests.server.peers import Peer


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class _Log:
    """A logger of its own with a throttle, and a clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.throttle = Throttle(lambda: self.now)
        self.logger = logging.Logger("dataspace-throttled")
        self.handler = _Lines()
        self.logger.addFilter(self.throttle)
        self.logger.addHandler(self.handler)
        logging.Logger.manager.loggerDict["dataspace-throttled"] = self.logger

    @property
    def lines(self) -> list[str]:
        return self.handler.lines


def test_equal_warnings_are_written_a_few_times_and_counted() -> None:
    log = _Log()
    for number in range(8_700):
        log.logger.warning("refused %d", number)
    assert log.lines == [f"refused {number}" for number in range(MOST)]
    log.throttle.report()
    assert len(log.lines) == MOST, "the window has not ended"
    log.now = WINDOW
    log.throttle.report()
    assert log.lines[MOST:] == [f"{8_700 - MOST} more like this in 10 s: refused 0"]
    log.logger.warning("refused %d", 1)
    assert len(log.lines) == MOST + 2
    log.now = 2 * WINDOW
    log.throttle.report()
    assert len(log.lines) == MOST + 2, "nothing was left out, so there is nothing to say"


def test_decoys_of_one_object_hide_nothing_of_another() -> None:
    log = _Log()
    for number in range(1_000):
        log.logger.warning("refused %s", f"decoy {number}", extra={"about": "decoy"})
    log.logger.warning("refused %s", "the vault", extra={"about": "vault"})
    assert log.lines == [*[f"refused decoy {number}" for number in range(MOST)], "refused the vault"]
    log.now = WINDOW
    log.throttle.report()
    assert log.lines[-1] == "995 more like this in 10 s: refused decoy 0; of these decoy 995"


def test_however_many_objects_there_are_the_lines_are_bounded_and_the_sum_names_them() -> None:
    log = _Log()
    for number in range(5_000):
        log.logger.warning("refused %s", number, extra={"about": f"object {number}"})
    assert len(log.lines) == LINES
    log.now = WINDOW
    log.throttle.report()
    assert len(log.lines) == LINES + 1
    said = log.lines[-1]
    assert said.startswith(f"{5_000 - LINES} more like this in 10 s: refused 0; of these object {LINES} 1, ")
    assert said.endswith(f" and {5_000 - LINES - NAMED} of others")


def test_repeats_of_some_objects_leave_lines_for_others() -> None:
    log = _Log()
    for number in range(LINES):
        for _ in range(100):
            log.logger.warning("refused %s", number, extra={"about": f"decoy {number % 20}"})
    log.logger.warning("refused %s", "the vault", extra={"about": "vault"})
    assert log.lines[-1] == "refused the vault"


def test_what_is_forgotten_for_others_is_counted_before() -> None:
    log = _Log()
    for _ in range(MOST + 3):
        log.logger.warning("refused")
    for number in range(KINDS):
        log.logger.warning(f"made {number}")
    assert "3 more like this in 10 s: refused" in log.lines


def test_the_end_writes_what_was_left_out() -> None:
    log = _Log()
    for _ in range(MOST + 3):
        log.logger.warning("refused")
    log.throttle.finish()
    assert log.lines[MOST:] == ["3 more like this in 10 s: refused"]
    log.throttle.finish()
    assert len(log.lines) == MOST + 1


def test_other_kinds_and_what_is_less_than_a_warning_pass() -> None:
    log = _Log()
    for number in range(100):
        log.logger.warning("one %d", number)
        log.logger.info("two %d", number)
    log.logger.error("one %d", 1)
    assert sum(line.startswith("one") for line in log.lines) == MOST + 1
    assert sum(line.startswith("two") for line in log.lines) == 100


def test_defects_at_different_places_are_different_kinds() -> None:
    log = _Log()
    for _ in range(20):
        for number, divisor in ((1, 0), ("x", 1)):
            try:
                number / divisor  # type: ignore[operator]
            except (ZeroDivisionError, TypeError):
                log.logger.exception("a defect")
    assert len(log.lines) == 2 * MOST


def test_kinds_are_bounded() -> None:
    log = _Log()
    for number in range(3 * KINDS):
        log.logger.warning(f"made {number}")
    assert len(log.lines) == 3 * KINDS
    assert len(log.throttle._kinds) == KINDS


async def test_wrong_tokens_are_logged_with_the_address_and_do_not_fill_the_log(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(
        listen=("tcp:127.0.0.1:0",),
        data=tmp_path,
        keys=(Key("admin", "a secret of many characters"),),
        limits=Limits(hello_seconds=0.2),
    )
    url = (await nursery.start(serve, config))[0]
    with trio.fail_after(30):
        async with trio.open_nursery() as guessing:
            for number in range(40):
                guessing.start_soon(_guess, url, number)
        told = [each.getMessage() for each in caplog.records if "refused a token" in each.getMessage()]
        assert len(told) == MOST
        assert all(each.startswith("refused a token from 127.0.0.5:") for each in told)
        assert "guess number" not in caplog.text
        assert "a secret" not in caplog.text


async def _guess(url: str, number: int) -> None:
    async with Peer(url, source="127.0.0.5") as peer:
        wanted = Wanted(token=f"guess number {number}").packed()
        await peer.say(p.Hello(p.VERSION, f"~{number}", "", wanted))
        assert (await peer.farewell()).code == "unauthorized"
