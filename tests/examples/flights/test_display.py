"""The display draws over itself on a terminal, and prints plain lines sparingly elsewhere."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from examples.flights.display import Display, Progress, lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_drawn_over() -> None:
    out = Terminal()
    progress = Progress(changes=10, airborne={"EWR": 1, "JFK": 2})
    display = Display(out)
    display.show(progress, 0.0)
    display.show(progress, 0.1)
    assert out.getvalue().count(f"\x1b[{len(lines(progress))}A") == 1


def test_airports_that_come_later_make_it_longer_not_garbled() -> None:
    out = Terminal()
    display = Display(out)
    display.show(Progress(), 0.0)
    display.show(Progress(airborne={"EWR": 1}), 0.1)
    display.show(Progress(airborne={"EWR": 2}), 0.2)
    assert "\x1b[3A" in out.getvalue() and "\x1b[4A" in out.getvalue()


def test_a_pipe_gets_a_line_every_few_seconds_and_no_control_characters() -> None:
    out = io.StringIO()
    display = Display(out)
    for tenth in range(100):
        display.show(Progress(changes=100, replayed=tenth), tenth / 10)
    display.end(Progress(changes=100, rows=90, replayed=100, counted=90))
    assert out.getvalue().splitlines() == [
        "replayed 0 %, counted 0 %, in the air: nobody yet",
        "replayed 50 %, counted 0 %, in the air: nobody yet",
        "replayed 100 %, counted 100 %, in the air: nobody yet",
    ]
    assert "\x1b" not in out.getvalue()


def test_every_line_fits_a_terminal_of_eighty() -> None:
    full = Progress(
        changes=664_122,
        rows=654_692,
        replayed=664_122,
        counted=654_692,
        at=datetime(2013, 12, 31, tzinfo=UTC),
        memory=400 << 20,
        airborne={"EWR": 88},
    )
    assert max(len(line) for line in lines(full)) < 80
