"""``dataspace shell``: reads lines and carries them out, at a prompt or from a script.

Always: an error ends a script with exit code 1, and the prompt goes on; Ctrl-C ends a command, Ctrl-D the
shell, and what the shell asserted ends with it.
"""

from __future__ import annotations

import argparse
import sys

from dataspace.client.connect import alone
from dataspace.errors import Closed, DataspaceError
from dataspace.transport.addresses import default_url
from server.cli.output import counted, say
from server.cli.shell.desk import Interpreter
from server.cli.shell.line import LentConnection
from server.cli.shell.prompt import Labels, Prompt
from server.cli.values import content

ENDS: frozenset[str] = frozenset(["exit", "quit"])


def shell(args: argparse.Namespace) -> int:
    """Runs the shell until its input ends; returns its exit code."""
    with LentConnection(args) as line:
        desk = Interpreter(line, args)
        return _converse(line, desk, args) if sys.stdin.isatty() else _play(line, desk)


def _play(line: LentConnection, desk: Interpreter) -> int:
    """Carries out the lines of the standard input, up to the first that fails."""
    for number, written in enumerate(sys.stdin, 1):
        text = content(written)
        if text in ENDS:
            break
        code = carry_out(desk, text)
        _show(line)
        if code:
            say(f"dataspace: line {number} failed, and the rest is not carried out: {text:.80}")
            return 1
    return 0


def _converse(line: LentConnection, desk: Interpreter, args: argparse.Namespace) -> int:
    """Reads lines at a prompt, until Ctrl-D."""
    labels = Labels(line)
    prompt = Prompt(lambda before, text: desk.complete(before, text, lambda: list(labels.all())))
    prompt.begin()
    say(f"connected to {args.url or default_url()}; help shows what there is, Ctrl-D ends")
    asked = "dataspace> " if args.space == "main" else f"dataspace {args.space}> "
    try:
        while True:
            try:
                _show(line)
                text = content(input(asked))
                if text in ENDS:
                    break
                labels.note(text)
                carry_out(desk, text)
            except KeyboardInterrupt:
                print(flush=True)
            except EOFError:
                print(flush=True)
                break
    finally:
        prompt.save()
    if held := line.held():
        say(f"the shell ends, and with it {counted(len(held), 'fact')}")
    return 0


def carry_out(desk: Interpreter, text: str) -> int:
    """Carries out a line, and says what is wrong with it; returns its exit code.

    Raises ``Closed`` where there will be no connection any more.
    """
    try:
        return desk.do(text)
    except SystemExit as ended:  # by the parser, which has said why
        return int(ended.code or 0)
    except Closed:
        raise
    except DataspaceError as error:
        say(f"dataspace: {error}")
    except BaseExceptionGroup as group:
        only = alone(group)
        if not isinstance(only, DataspaceError):
            raise
        say(f"dataspace: {only}")
    return 1


def _show(line: LentConnection) -> None:
    """Prints what has come since the last prompt."""
    line.settle()
    while line.notices:
        print(line.notices.popleft(), flush=True)
