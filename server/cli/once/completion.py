"""``dataspace completion``: a script that completes the commands and options of ``dataspace`` in a shell.

The script is made from the table of commands.  The shell loads it once and completes by itself: no command is
run for a Tab.

Always: texts of the table are quoted for the shell that reads them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from server.cli.table import ROWS, verbs_of

FILES: Final = ("FILE", "DIR")
"""What options take for which file names are completed."""


class Option(NamedTuple):
    """One option: its names, its help, what it takes (empty: nothing), and the values that there are."""

    names: tuple[str, ...]
    help: str
    takes: str
    choices: tuple[str, ...]


class Level(NamedTuple):
    """The words that may follow some words of a command line: commands or choices with their help, and
    options."""

    path: str
    commands: tuple[tuple[str, str], ...]
    flags: tuple[Option, ...]


HELP: Final = Option(("-h", "--help"), "show this help message and exit", "", ())


def completion(args: argparse.Namespace) -> int:
    """Prints the script for one shell."""
    print(SHELLS[args.shell](list(levels())), end="")
    return 0


def levels() -> Iterator[Level]:
    """Yields the words that may follow ``dataspace``, and each row of the table."""
    commands = tuple([(row.name, row.help) for row in ROWS if not row.verb])
    yield Level("dataspace", commands, (HELP, Option(("--version",), "show the version and exit", "", ())))
    for row in ROWS:
        verbs = [(each.verb, each.help) for each in verbs_of(row)]
        words = [choice for each in row.arguments if not each.is_option for choice in each.choices]
        flags = [
            Option(each.names, each.help, each.takes, each.choices)
            for each in row.all_arguments
            if each.is_option and each.help != argparse.SUPPRESS
        ]
        yield Level(f"dataspace {row.name}", (*verbs, *[(choice, "") for choice in words]), (HELP, *flags))


def _quoted(text: str) -> str:
    """Returns a text as one word of a POSIX shell, or of zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _paths(found: list[Level]) -> str:
    """Returns the alternatives of a ``case`` that is true for the words of a command."""
    return "|".join(_quoted(level.path) for level in found if level.path != "dataspace")


def _values(found: list[Level]) -> Iterator[tuple[str, Option]]:
    """Yields each option that takes a value, with the alternatives for its words."""
    for level in found:
        for flag in level.flags:
            if flag.takes:
                yield "|".join(_quoted(f"{level.path} {name}") for name in flag.names), flag


# -- bash ---------------------------------------------------------------------------------------------


def bash(found: list[Level]) -> str:
    """Returns the script for bash."""
    lines = [
        "# dataspace in bash: source <(dataspace completion bash), or save it as",
        "# ~/.local/share/bash-completion/completions/dataspace",
        "_dataspace() {",
        "    local word path=dataspace at",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        "    COMPREPLY=()",
        "    for ((at = 1; at < COMP_CWORD; at++)); do",
        '        word="${COMP_WORDS[at]}"',
        "        [[ $word == -- ]] && return",
        '        case "$path $word" in',
        f'            {_paths(found)}) path="$path $word" ;;',
        "        esac",
        "    done",
        '    case "$path $before" in',
    ]
    for words, flag in _values(found):
        if flag.choices:
            act = f'COMPREPLY=($(compgen -W {_quoted(" ".join(flag.choices))} -- "$cur"))'
        elif flag.takes in FILES:
            act = 'COMPREPLY=($(compgen -f -- "$cur"))'
        else:
            act = "COMPREPLY=()"
        lines.append(f"        {words}) {act}; return ;;")
    lines += ["    esac", '    case "$path" in']
    for level in found:
        words = " ".join([*[name for name, _ in level.commands], *[n for f in level.flags for n in f.names]])
        lines.append(f"        {_quoted(level.path)}) word={_quoted(words)} ;;")
    lines += [
        "    esac",
        '    COMPREPLY=($(compgen -W "$word" -- "$cur"))',
        "}",
        "complete -F _dataspace dataspace",
    ]
    return "\n".join(lines) + "\n"


# -- zsh ----------------------------------------------------------------------------------------------


def zsh(found: list[Level]) -> str:
    """Returns the script for zsh."""
    lines = [
        "#compdef dataspace",
        "# dataspace in zsh: source <(dataspace completion zsh) after compinit, or save it as",
        "# _dataspace in a directory of $fpath",
        "_dataspace() {",
        "    local word at=dataspace",
        "    local -a found flags",
        "    for word in ${words[2,CURRENT-1]}; do",
        "        [[ $word == -- ]] && { _normal; return }",
        '        case "$at $word" in',
        f'            {_paths(found)}) at="$at $word" ;;',
        "        esac",
        "    done",
        '    case "$at ${words[CURRENT-1]}" in',
    ]
    for words, flag in _values(found):
        if flag.choices:
            act = f"found=({' '.join(map(_quoted, flag.choices))}); _describe value found"
        elif flag.takes in FILES:
            act = "_files"
        else:
            act = f"_message {_quoted(flag.takes)}"
        lines.append(f"        {words}) {act}; return ;;")
    lines += ["    esac", '    case "$at" in']
    for level in found:
        described = " ".join(_described(name, said) for name, said in level.commands)
        flags = " ".join(_described(name, flag.help) for flag in level.flags for name in flag.names)
        lines.append(f"        {_quoted(level.path)}) found=({described}); flags=({flags}) ;;")
    lines += [
        "    esac",
        "    if [[ ${words[CURRENT]} == -* ]]; then _describe -o option flags",
        "    else _describe command found; fi",
        "}",
        'if [ "$funcstack[1]" = _dataspace ]; then _dataspace "$@"; else compdef _dataspace dataspace; fi',
    ]
    return "\n".join(lines) + "\n"


def _described(name: str, said: str) -> str:
    """Returns a word with its help, as ``_describe`` takes both."""
    return _quoted(f"{name}:{said}" if said else name)


# -- fish ---------------------------------------------------------------------------------------------


def fish(found: list[Level]) -> str:
    """Returns the script for fish."""
    paths = " ".join(_fished(level.path) for level in found if level.path != "dataspace")
    lines = [
        "# dataspace in fish: dataspace completion fish > ~/.config/fish/completions/dataspace.fish",
        "function __dataspace_at",
        "    set -l at dataspace",
        "    for word in (commandline -opc)[2..-1]",
        '        contains -- "$at $word" ' + paths + '; and set at "$at $word"',
        "    end",
        '    test "$at" = "$argv"',
        "end",
        "complete -c dataspace -f",
    ]
    for level in found:
        begun = f"complete -c dataspace -n {_fished('__dataspace_at ' + level.path)}"
        for name, said in level.commands:
            lines.append(f"{begun} -a {_fished(name)} -d {_fished(said)}")
        for flag in level.flags:
            names = " ".join(
                f"-l {_fished(name[2:])}" if name.startswith("--") else f"-s {_fished(name[1:])}"
                for name in flag.names
            )
            value = ""
            if flag.choices:
                value = f" -x -a {_fished(' '.join(flag.choices))}"
            elif flag.takes:
                value = " -r -F" if flag.takes in FILES else " -x"
            lines.append(f"{begun} {names}{value} -d {_fished(flag.help)}")
    return "\n".join(lines) + "\n"


def _fished(text: str) -> str:
    """Returns a text as one word of fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Final[dict[str, Callable[[list[Level]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
