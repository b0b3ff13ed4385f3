"""Each row of the table is carried out by a function, and refuses what it does not take."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator

import pytest

from server.cli.arguments import Command, options_of
from server.cli.main import SHORT
from server.cli.parser import parse, parser
from server.cli.table import BY_NAME, ROWS, verbs_of

CARRIED_OUT = [row for row in ROWS if row.run]
CHOOSING: dict[str, list[dict[str, object]]] = {
    "assert": [{"durable": ""}, {"durable": "me"}],
    "send": [{"message": ["-"]}, {"message": ["f(1)"]}],
    "log verify": [{"archive": None}, {"archive": "file:///a"}],
    "topic read": [{"archive": None}, {"archive": "file:///a"}],
}
"""Arguments by which the function of a row is chosen, so that each is."""

LASTING = ("cli.lasting.", "cli.demo.", "groups.commands.consume:", "topics.commands:")
"""What needs an event loop."""

by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def functions(row: Command) -> Iterator[tuple[str, Callable[[argparse.Namespace], object]]]:
    for each in CHOOSING.get(row.name, [{}]):
        args = argparse.Namespace(**each)
        yield row.target(args), row.function(args)


def test_all_rows_with_a_choice_are_tried() -> None:
    assert {row.name for row in ROWS if callable(row.run)} == CHOOSING.keys()


@pytest.mark.parametrize("row", CARRIED_OUT, ids=lambda row: row.name)
def test_the_function_of_a_row_is_there_and_loops_only_where_it_may(row: Command) -> None:
    for target, function in functions(row):
        assert function.__doc__, f"{target} says what it does"
        is_async = bool(function.__code__.co_flags & 0x80)
        assert is_async == target.startswith(LASTING)
        assert not (is_async and target.startswith(SHORT))


@by_row
def test_a_row_is_a_command_or_has_verbs(row: Command) -> None:
    assert bool(row.run) != bool(verbs_of(row))
    assert not row.verb or row.command in BY_NAME
    assert row.help[0].islower() and not row.help.endswith("."), "help is imperative and short"
    assert not row.otherwise or f"{row.name} {row.otherwise}" in BY_NAME


OPTIONS = [(row, name) for row in CARRIED_OUT for name in options_of(row.all_arguments)]


EVERYWHERE = {name for _, name in OPTIONS}


@pytest.mark.parametrize(("row", "name"), OPTIONS, ids=[f"{row.name} {name}" for row, name in OPTIONS])
def test_an_option_that_is_misspelled_is_refused_with_the_nearest(
    capsys: pytest.CaptureFixture[str], row: Command, name: str
) -> None:
    """The beginning of a name is no name either: another option may begin so one day."""
    known = {"--help", *options_of(row.all_arguments)}
    for wrong in {f"{name[:3]}{name[4:]}", name[:-1]} - EVERYWHERE - {"--"}:
        with pytest.raises(SystemExit) as ended:
            parse([*row.name.split(), *complete(row), f"{wrong}=1"])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"dataspace {row.name}: unrecognized arguments: {wrong}")
        assert said.rpartition("did you mean ")[2].rstrip("?\n") in known, said


def complete(row: Command) -> list[str]:
    """The words and options without which a row refuses a command line."""
    words = [(*each.choices, "1")[0] for each in row.arguments if not each.is_option]
    needed = [each.names[0] for each in row.arguments if each.settings.get("required")]
    needed += {each.instead.rstrip("!") for each in row.arguments if each.instead.endswith("!")}
    return [*words, *[f"{name}=1" for name in needed]]


VALUES = ["-1", "x", "", "1e999", "nan", "9" * 26, "\x1b[31mred", "🦄", "a b", "0", "{", "1h", "\udc80"]
"""Values of which most arguments take few."""
STRIDE = 1 if os.environ.get("TORTURE_ROUNDS") else 4


def some(at: int) -> list[str]:
    """Some of them, others for each argument; all with torture."""
    return VALUES[at % STRIDE :: STRIDE]


@pytest.mark.parametrize("row", CARRIED_OUT, ids=lambda row: row.name)
def test_any_value_is_taken_or_refused_in_words(capsys: pytest.CaptureFixture[str], row: Command) -> None:
    words, names = complete(row), options_of(row.all_arguments)
    lines = [[*words, f"{name}={value}"] for at, name in enumerate(names) for value in some(at)]
    lines += [[*words[:at], value, *words[at + 1 :]] for at in range(len(words)) for value in some(at)]
    for line in lines:
        try:
            parse([*row.name.split(), *line])
        except SystemExit as ended:
            assert ended.code == 2, line
            said = capsys.readouterr().err
            assert said.startswith(f"dataspace {row.command}"), line
            assert said.replace("\n", "").isprintable(), said


def test_an_option_before_the_command_is_told_where_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--url", "tcp://x:1", "status"])
    assert capsys.readouterr().err == (
        "dataspace: --url stands after the command: dataspace COMMAND --url …\n"
    )


HELP = " ".join(parser().format_help().split())


@by_row
def test_every_argument_is_explained(row: Command) -> None:
    for each in row.all_arguments:
        if each.is_option:
            assert each.help, f"{row.name} {each.names[0]}"
    assert row.help in HELP or row.verb
