"""The check finds every difference, whichever side has the figure."""

from __future__ import annotations

from dataclasses import replace

from examples.flights.check import Line, compared, table
from examples.flights.expected import Figures

FIGURES = Figures(
    flights={("UA", "EWR"): 3, ("B6", "JFK"): 2},
    aloft={"EWR": 2},
    cancelled={"LGA": 1},
    diverted={},
    airborne={"EWR": 0},
)


def different(found: Figures) -> list[Line]:
    return [line for line in compared(FIGURES, found) if not line.equal]


def test_equal_figures_have_no_difference() -> None:
    assert different(replace(FIGURES)) == []
    assert len(compared(FIGURES, FIGURES)) == 5


def test_a_wrong_figure_is_a_difference() -> None:
    assert different(replace(FIGURES, aloft={"EWR": 3})) == [Line("most in the air at once, EWR", 2, 3)]


def test_a_missing_figure_is_a_difference() -> None:
    found = replace(FIGURES, flights={("UA", "EWR"): 3})
    assert different(found) == [Line("flights, B6 JFK", 2, None)]


def test_a_figure_too_many_is_a_difference_even_if_it_is_nought() -> None:
    assert different(replace(FIGURES, diverted={"EWR": 0})) == [Line("diverted, EWR", None, 0)]


def test_the_table_marks_differences_only() -> None:
    said = table(compared(FIGURES, replace(FIGURES, cancelled={"LGA": 4})))
    assert [line.split()[0] for line in said.splitlines() if line.endswith("DIFFERENT")] == ["cancelled,"]
