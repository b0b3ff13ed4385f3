"""The command line: every option of ``dataspace``, and which of them may be combined.

It is apart from the commands, so that parsing loads none of them.

Always: a command line is understood as a whole, or refused with what is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from server.cli import connecting as client_options, serve_options
from server.cli.options import asking, demo as demo_options, putting, topic as topic_options, watching
from server.cli.options.complaints import Parser
from server.upkeep import options as upkeep_options

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXAMPLES = """\
examples:
  dataspace serve --listen tcp:127.0.0.1:7377 --data ./data
  dataspace serve --config dataspace.toml --check
  dataspace assert 'present("Alice")'
  dataspace get 'present($who)'
  dataspace query 'present($who), not busy($who)' --table
  dataspace observe 'present($who)' --json
  dataspace send 'say("Alice", "hi")'
  dataspace log 'present($who)' --from 1
  dataspace topic subscribe readings --wait 30s
  dataspace status
  dataspace index

Facts, messages and patterns are text: present("Alice"), reading("d1", 21.5, [1, 2], {"k": null});
in patterns, _ stands for anything and $name captures it. The address of the daemon is --url, else
$DATASPACE_URL, else tcp://127.0.0.1:7377.
"""

RULE_EXAMPLES = """\
examples:
  dataspace rule add near 'near($x, $y) <- at($x, $place), at($y, $place), $x != $y.' --durable map
  dataspace rule add crowd 'crowd($place, count($x)) <- at($x, $place).'
  dataspace rule add all @my.rules
  dataspace rule why 'near("Alice", _)'
  dataspace rule why-not 'near("Alice", "Bob")'
  dataspace rule graph > rules.mmd
"""


def parser(only: str = "") -> argparse.ArgumentParser:
    """Returns the parser of the whole command line; with ``only``, that of one command.

    To make the parsers of all commands takes longer than most of them do.
    """
    top: argparse.ArgumentParser = _Parser(
        prog="dataspace",
        description="A shared space of facts. A fact exists as long as at least one owner asserts it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    client = argparse.ArgumentParser(add_help=False)
    client_options.add_to(client)
    for name, add in COMMANDS.items():
        if only in ("", name):
            add(commands, client)
    return top


def parse(words: list[str]) -> argparse.Namespace:
    """Returns the parsed command line; if it is invalid, prints the usage and ends the process with 2."""
    program: list[str] | None = None
    if "--" in words:
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    top = parser(words[0] if words and words[0] in COMMANDS else "")
    args, rest = top.parse_known_args(_log_words(words))
    if rest:
        _used(top, args).error(f"unrecognized arguments: {' '.join(rest)}")
    args.program = program
    mistake = _mistake(args)
    if mistake:
        top.error(mistake)
    return args


class _Version(argparse.Action):
    """Shows the version, for which it looks up what is machine code."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: str | Sequence[Any] | None,
        _option: str | None = None,
    ) -> None:
        from dataspace.version import __version__, compiled_parts, described

        print(f"dataspace {described(__version__, compiled_parts())}")
        parser.exit()


def _used(top: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.ArgumentParser:
    """Returns the parser of the command that was named, down to its verb."""
    for name in (args.command, getattr(args, "verb", None)):
        for action in top._actions:
            if isinstance(action, argparse._SubParsersAction) and name in action.choices:
                top = action.choices[name]
                break
    return top


def _mistake(args: argparse.Namespace) -> str:
    """Returns what is wrong with a combination of options; empty if nothing is."""
    if args.program is not None:
        if args.command != "assert":
            return f"{args.command} takes no program after --"
        if not args.program:
            return "no program after --; name one, such as -- ./backup.sh"
    if args.command == "observe" and args.conflate and args.since is None:
        return "--conflate needs --from"
    for name, first in (("--from", "since"), ("--after", "after")):
        began, ended = getattr(args, first, None), getattr(args, "until", None)
        if isinstance(began, int) and isinstance(ended, int) and ended < began:  # no times of topics
            return f"--until {ended} is before {name} {began}"
    if args.command == "assert":
        ways = {"--durable": args.durable, "--for": args.hold, "a program": args.program}
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            return f"{given[0]} and {given[1]} exclude each other; use one of them"
        owners = {"--durable": args.durable, "--lease": args.lease, "--grace": args.grace}
        given = [name for name, value in owners.items() if value]
        if len(given) > 1:
            return f"{given[0]} and {given[1]} exclude each other; facts have one kind of owner"
    return ""


def _assert(commands: Commands, client: argparse.ArgumentParser) -> None:
    held = commands.add_parser(
        "assert",
        parents=[client],
        help="assert facts until Ctrl-C, for a time, or while a program runs",
        epilog="Give a program after --: dataspace assert 'busy(\"backup\")' -- ./backup.sh",
    )
    held.add_argument(
        "fact",
        nargs="+",
        metavar="FACT",
        help="a fact, such as 'present(\"Alice\")'; - to read one per line from standard input",
    )
    held.add_argument(
        "--for", dest="hold", metavar="TIME", help="retract the facts after TIME, such as 10s, 500ms, 2m"
    )
    held.add_argument(
        "--grace", metavar="TIME", help="keep the facts for TIME after a lost connection, such as 10s"
    )
    held.add_argument(
        "--lease", metavar="TIME", help="keep the facts for TIME after this command or the daemon is killed"
    )
    held.add_argument(
        "--durable", "--owner", metavar="NAME", help="assert for the durable owner NAME, and return at once"
    )


def _retract(commands: Commands, client: argparse.ArgumentParser) -> None:
    ended = commands.add_parser(
        "retract",
        parents=[client],
        help="retract facts that a durable owner or a lease asserts",
        epilog="A pattern retracts all that NAME asserts and the pattern matches:"
        " dataspace retract 'task(_, \"done\")' --durable NAME",
    )
    ended.add_argument(
        "fact",
        nargs="+",
        metavar="FACT",
        help="a fact, or a pattern; - to read facts, one per line, from standard input",
    )
    whose = ended.add_mutually_exclusive_group(required=True)
    whose.add_argument("--durable", "--owner", metavar="NAME", help="owner of the facts")
    whose.add_argument(
        "--lease",
        metavar="NAME",
        help="the lease of the facts, as dataspace owners shows it: lease:60000:NAME; this renews it",
    )


def _observe(commands: Commands, client: argparse.ArgumentParser) -> None:
    seen = commands.add_parser(
        "observe", parents=[client], help="print what matches, and changes as they come"
    )
    seen.add_argument("pattern", metavar="PATTERN", help="such as 'present($who)'")
    seen.add_argument("--json", action="store_true", help="print one JSON object per line")
    seen.add_argument("--count", type=_count, metavar="N", help="end after N changes")
    seen.add_argument(
        "--from", dest="since", type=_epoch, metavar="EPOCH", help="begin with this epoch, from the log"
    )
    seen.add_argument("--until", type=_epoch, metavar="EPOCH", help="end with this epoch")
    seen.add_argument(
        "--progress", action="store_true", help="also print up to which epoch all changes were printed"
    )
    seen.add_argument(
        "--conflate", action="store_true", help="with --from: print only the net difference of the past"
    )
    seen.add_argument("--changes-only", action="store_true", help="omit what matches already")
    seen.add_argument(
        "--exec",
        dest="execute",
        metavar="COMMAND",
        help="print nothing; run COMMAND in a shell for each change, one at a time, with the change as JSON"
        " on its standard input, and in $DATASPACE_CHANGE, $DATASPACE_EPOCH and $DATASPACE_CAPTURE_NAME",
    )
    seen.add_argument("--quiet", action="store_true", help="assert no interest")
    seen.add_argument(
        "--pace",
        metavar="DURATION",
        help="print changes at most once in DURATION, such as 100ms: the net difference of what waits",
    )
    seen.add_argument(
        "--policy",
        choices=["conflate", "wait", "fail", "drop"],
        default="conflate",
        help="what to do with changes that are not read in time (default: conflate, keep the net difference)",
    )


def _send(commands: Commands, client: argparse.ArgumentParser) -> None:
    sent = commands.add_parser("send", parents=[client], help="send messages, in one turn")
    sent.add_argument(
        "message",
        nargs="+",
        metavar="MESSAGE",
        help='such as \'say("Alice", "hi")\'; - to send each line of standard input as it comes',
    )


LOG_VERBS: Final = ("read", "verify", "compact", "export")


def _log(commands: Commands, client: argparse.ArgumentParser) -> None:
    log = commands.add_parser(
        "log",
        help="print the changes of past epochs; check, compact or export a log",
        epilog="dataspace log PATTERN is short for dataspace log read PATTERN.",
    )
    verbs = log.add_subparsers(dest="verb", metavar="VERB", required=True)
    past = verbs.add_parser("read", parents=[client], help="print the changes of past epochs from a daemon")
    _epochs(past)
    past.add_argument("--follow", action="store_true", help="continue with new epochs as they come")
    past.add_argument("--who", action="store_true", help="also print owner, client and token of each change")
    past.add_argument("--json", action="store_true", help="print one JSON object per line")
    past.add_argument("--count", type=_count, metavar="N", help="end after N changes")
    files = argparse.ArgumentParser(add_help=False)
    files.add_argument(
        "--data",
        metavar="DIR",
        type=serve_options.path,
        help="directory of the log (default ~/.local/state/dataspace)",
    )
    verify = verbs.add_parser("verify", parents=[files], help="check that nothing is missing or altered")
    verify.add_argument("--json", action="store_true", help="print one JSON object")
    compact = verbs.add_parser(
        "compact", parents=[files], help="free disk space; the daemon must not be running"
    )
    serve_options.add_keeping(compact)
    export = verbs.add_parser("export", parents=[files], help="write changes to a file")
    _epochs(export)
    export.add_argument("--format", choices=["jsonl", "msgpack", "parquet"], default="jsonl")
    export.add_argument(
        "--output", metavar="FILE", type=serve_options.path, help="write to FILE (default: standard output)"
    )
    export.add_argument(
        "--state", action="store_true", help="write the state before the first epoch, as additions"
    )


def _epochs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "pattern", metavar="PATTERN", nargs="?", default="$", help="default: every fact and message"
    )
    command.add_argument(
        "--from",
        dest="since",
        type=topic_options.epoch_number,
        metavar="EPOCH",
        help="the first epoch (default: the oldest)",
    )
    command.add_argument(
        "--until",
        type=topic_options.epoch_number,
        metavar="EPOCH",
        help="the last epoch (default: the newest)",
    )


def _log_words(words: list[str]) -> list[str]:
    """Returns ``log PATTERN`` as ``log read PATTERN``: no pattern is written like one of the verbs."""
    if words[:1] == ["log"] and not {*words[1:2]} & {*LOG_VERBS, "-h", "--help"}:
        return ["log", "read", *words[1:]]
    return words


def _rule(commands: Commands, client: argparse.ArgumentParser) -> None:
    ruled = commands.add_parser(
        "rule",
        help="add, list and explain rules",
        description="Rules derive facts from facts, for as long as a rule(name, text) is asserted.",
        epilog=RULE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = ruled.add_subparsers(dest="verb", metavar="VERB", required=True)
    add = verbs.add_parser(
        "add", parents=[client], help="add a rule until Ctrl-C, or durably in place of the one before"
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument("text", metavar="TEXT", help="such as 'near($x) <- at($x, _).', or @FILE")
    add.add_argument("--durable", metavar="OWNER", help="add the rule for the durable owner OWNER")
    remove = verbs.add_parser("remove", parents=[client], help="remove a rule that was added durably")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument("--durable", metavar="OWNER", required=True, help="who it was added for")
    resume = verbs.add_parser("resume", parents=[client], help="carry out again a rule that was suspended")
    resume.add_argument("name", metavar="NAME")
    listed = verbs.add_parser("list", parents=[client], help="the rules, and what is wrong with them")
    listed.add_argument("--json", action="store_true", help="as one JSON object for each")
    asked = {
        "explain": verbs.add_parser("explain", parents=[client], help="show how the rules are evaluated"),
        "why": verbs.add_parser("why", parents=[client], help="show a proof of a fact"),
        "why-not": verbs.add_parser(
            "why-not", parents=[client], help="show what is missing for a fact to be derived"
        ),
        "monotone": verbs.add_parser(
            "monotone", parents=[client], help="list the rules that need no coordination"
        ),
    }
    asked["why"].add_argument(
        "about", metavar="FACT", help="a fact, or a pattern for the first fact that it matches"
    )
    asked["why-not"].add_argument("about", metavar="PATTERN")
    for parser in asked.values():
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    verbs.add_parser(
        "graph",
        parents=[client],
        help="draw strata and handoffs, also of hosted flows, as a mermaid flowchart",
    )


def _status(commands: Commands, client: argparse.ArgumentParser) -> None:
    command = commands.add_parser("status", parents=[client], help="show daemon status")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _index(commands: Commands, client: argparse.ArgumentParser) -> None:
    drawn = commands.add_parser(
        "index",
        parents=[client],
        help="draw the daemon's index: the observers of each pattern",
        epilog="dataspace index --form dot | dot -Tsvg > index.svg",
    )
    drawn.add_argument(
        "--form",
        default="text",
        choices=["text", "mermaid", "dot"],
        help="format of the drawing (default text)",
    )
    drawn.add_argument(
        "--most", type=int, default=20, metavar="N", help="draw at most N of a kind (default 20)"
    )


def _owners(commands: Commands, client: argparse.ArgumentParser) -> None:
    asked = commands.add_parser(
        "owners",
        parents=[client],
        help="show who claims the facts that match a pattern",
        epilog="Each line has the fact, its owner, the bearer of the token and the stamp of its token.",
    )
    asked.add_argument("pattern", metavar="PATTERN", help="pattern of the facts")
    asked.add_argument(
        "--most", type=int, default=1000, metavar="N", help="show at most N claims (default 1000)"
    )
    asked.add_argument("--json", action="store_true", help="print one JSON object per line")


def _actors(commands: Commands, client: argparse.ArgumentParser) -> None:
    command = commands.add_parser("actors", parents=[client], help="show hosted actors")
    command.add_argument("--json", action="store_true", help="print one JSON object per line")


def _token(commands: Commands, _client: argparse.ArgumentParser) -> None:
    made = commands.add_parser(
        "token",
        help="make a secret for a daemon, or a token with fewer rights",
        epilog="A token can be narrowed without the daemon: dataspace token narrow --help",
    )
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("new", help="print a new random secret")
    less = verbs.add_parser("narrow", help="print a token with fewer rights, without the daemon")
    less.add_argument("--token", metavar="TEXT", help="narrow this token (or $DATASPACE_TOKEN)")
    less.add_argument(
        "--token-file", metavar="FILE", help="read the token from FILE (or $DATASPACE_TOKEN_FILE)"
    )
    for right in ("assert", "send", "observe"):
        less.add_argument(
            f"--{right}",
            dest=f"may_{right}",
            metavar="PATTERN",
            action="append",
            help=f"allow to {right} PATTERN",
        )
        less.add_argument(
            f"--deny-{right}",
            dest=f"not_{right}",
            metavar="PATTERN",
            action="append",
            help=f"do not allow to {right} PATTERN, whatever else is allowed",
        )
    less.add_argument(
        "--stamp", metavar="NAME=WORD", action="append", help="mark all that the bearer claims with NAME=WORD"
    )
    less.add_argument("--durable", metavar="NAME", action="append", help="allow the durable owner NAME")
    less.add_argument("--topic", metavar="NAME", action="append", help="allow the topic NAME")
    less.add_argument(
        "--reader", metavar="NAME", action="append", help="allow the named reader NAME of a log"
    )
    less.add_argument(
        "--name",
        metavar="NAME",
        help="name of the bearer; bearers of different names cannot use what belongs to one another",
    )
    less.add_argument("--rules", action="store_true", help="allow to add rules")
    less.add_argument("--inspect", action="store_true", help="allow to inspect the daemon")
    less.add_argument("--space", metavar="NAME", action="append", help="allow only the dataspace NAME")
    less.add_argument("--for", dest="lasting", metavar="TIME", help="expire after TIME, such as 8h or 30d")


def _count(text: str) -> int:
    """Returns the number of changes to print: at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of changes, give 1 or more")
    return int(text)


def _epoch(text: str) -> int:
    """Returns the number of an epoch: at least one."""
    return topic_options.epoch_number(text, least=1)


COMMANDS: Final[dict[str, Callable[[Commands, argparse.ArgumentParser], None]]] = {
    "serve": serve_options.add_parser,
    "assert": _assert,
    "retract": _retract,
    "put": putting.add_put,
    "get": asking.add_get,
    "query": asking.add_query,
    "observe": _observe,
    "watch": asking.add_watch,
    "send": _send,
    "log": _log,
    "rule": _rule,
    "status": _status,
    "index": _index,
    "owners": _owners,
    "actors": _actors,
    "sessions": watching.add_sessions,
    "top": watching.add_top,
    "inspect": watching.add_inspect,
    "token": _token,
    "topic": topic_options.add_parser,
    "backup": upkeep_options.add_backup,
    "restore": upkeep_options.add_restore,
    "drain": upkeep_options.add_drain,
    "shell": asking.add_shell,
    "completion": asking.add_completion,
    "demo": demo_options.add_parser,
}
"""What adds the parser of each command, in the order of the help."""


class _Parser(Parser):
    """A parser of this command line, or of a part of it."""

    def whole(self) -> argparse.ArgumentParser:
        return parser()
