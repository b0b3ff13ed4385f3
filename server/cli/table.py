"""The table of commands: for each its help, its arguments, and the function that carries it out.

The parser, the completion of shells, the prompt of ``dataspace shell`` with its help, and the reference page
are made from this table alone.

Always: loading the table loads no command.
"""

from __future__ import annotations

import argparse
from typing import Final

from server.cli import arguments as a
from server.cli.arguments import JSON_LINES, Argument, Command, flag, one_of, option, repeated, word
from server.cli.dividing import CONSUME
from server.cli.operating import ARCHIVE, COPY, KEEPING, OPERATING, STORE, VERIFY

DESCRIPTION: Final = "A shared space of facts. A fact exists as long as at least one owner asserts it."

EPILOG: Final = """\
examples:
  dataspace serve --listen tcp:127.0.0.1:7377 --data ./data
  dataspace serve --config dataspace.toml --check
  dataspace put 'temp("d1", 21)' --durable lab
  dataspace watch 'temp($device, $celsius)' --by device
  dataspace assert 'present("Alice")'
  dataspace get 'present($who)'
  dataspace query 'present($who), not busy($who)' --table
  dataspace observe 'present($who)' --json
  dataspace send 'say("Alice", "hi")'
  dataspace log 'present($who)' --since 1h
  dataspace topic subscribe readings --wait 30s
  dataspace status
  dataspace index

Facts, messages and patterns are text: present("Alice"), reading("d1", 21.5, [1, 2], {"k": null});
in patterns, _ stands for anything and $name captures it. The address of the daemon is --url, else
$DATASPACE_URL, else tcp://127.0.0.1:7377.
"""


# -- arguments of several rows, and what may not be combined -------------------------------------------

_PAST: Final = word("PATTERN", "default: every fact and message", nargs="?", default="$")
_FROM: Final = option(
    "--from EPOCH", "the first epoch (default: the oldest)", dest="since", type=a.epoch_or_zero
)
_UNTIL: Final = option("--until EPOCH", "the last epoch (default: the newest)", type=a.epoch_or_zero)
_SINCE: Final = option(
    "--since DURATION|TIME",
    "begin so long ago, such as 1h, or at a time such as 2026-11-22T09:00:00Z",
    dest="moment",
    type=a.since,
)
_FORMS: Final = (
    *one_of(
        *[
            flag(f"--{form}", help, dest="form", action="store_const", const=form, default="text")
            for form, help in (
                ("json", "print one JSON object per line"),
                ("table", "print a table"),
                ("csv", "print comma-separated values, with a header"),
            )
        ]
    ),
    option(
        "--as-of EPOCH|TIME",
        "take the state at an epoch, or at a time such as 2026-11-22T09:00:00Z, from the log (default: now)",
        type=a.moment,
    ),
)


_IF: Final = (
    repeated(
        "--expect PATTERN", "do nothing (exit code 4) unless a fact matches; may be given several times"
    ),
    repeated("--absent PATTERN", "do nothing (exit code 4) if a fact matches; may be given several times"),
)


def _unchanged(which: str) -> Argument:
    help = f"do nothing (exit code 4) if {which} came or went after EPOCH"
    return option("--unchanged-since EPOCH", help, type=a.epoch_or_zero)


def _range(args: argparse.Namespace) -> str:
    for name, first in (("--from", "since"), ("--after", "after")):
        began, ended = getattr(args, first, None), args.until
        if isinstance(began, int) and isinstance(ended, int) and ended < began:
            return f"--until {ended} is before {name} {began}"
    return ""


def _observed(args: argparse.Namespace) -> str:
    begun = args.since is not None or args.moment is not None
    return "--conflate needs --from or --since" if args.conflate and not begun else _range(args)


def _streamed(args: argparse.Namespace) -> str:
    return (
        "--expect and --absent need messages, not -"
        if "-" in args.message and (args.expect or args.absent)
        else ""
    )


def _owned(args: argparse.Namespace) -> str:
    ways = {"--durable": args.durable, "--for": args.hold, "a program": args.program}
    owners = {"--durable": args.durable, "--lease": args.lease, "--grace": args.grace}
    for options, reason in ((ways, "use one of them"), (owners, "facts have one kind of owner")):
        given = [name for name, value in options.items() if value]
        if len(given) > 1:
            return f"{given[0]} and {given[1]} exclude each other; {reason}"
    return ""


# -- the rows ------------------------------------------------------------------------------------------

# A table: an argument is one line where it fits.
# fmt: off
USING: Final = (
    Command("put", "assert a fact in place of the one with the same key", "cli.once.turns:put",
        (
            word("FACT", "a record, such as 'config(\"billing\", \"rate\", 7)'"),
            option("--key PATTERN", "which facts it replaces; else all fields but the last"),
            option("--durable --owner NAME", "owner of the fact", required=True),
            *_IF, _unchanged("a fact with the key"),
        ),
        at_prompt=("Change", "put rate(7) --owner board  assert a fact in place of one with the same key"),
        epilog="""\
examples:
  dataspace put 'config("billing", "rate", 7)' --durable operations
  dataspace put 'place("v1", 3, 4)' --key 'place("v1", _, _)' --durable map
  dataspace put 'config("speed", 8)' --durable ops --expect 'config("speed", 7)'

FACT takes the place of what NAME asserts with the same key, in one epoch: no observer sees both, or none.
The key is all fields but the last, or what PATTERN matches. Each owner has one fact for each key.
""",
    ),
    Command("watch", "show what matches, live: tables on a terminal, or changes by key",
        "cli.lasting.watch:watch",
        (
            word("PATTERN", "a table for each", nargs="+"),
            option("--by CAPTURE", "the capture that is a key, or several with commas: a key whose row"
                   " changes keeps its line; without a terminal, print each change as `key old -> new`"),
        ),
        epilog="example: dataspace watch 'task($id, $state)' --by id. It asserts no interest; a terminal"
        " needs rich: pip install 'dataspace-server[terminal]'",
    ),
    Command("assert", "assert facts until Ctrl-C, for a time, or while a program runs",
        lambda args: "cli.once.turns:assert_" if args.durable else "cli.lasting.facts:assert_",
        (
            word("FACT", "a fact, such as 'present(\"Alice\")'; - to read one per line from standard input",
                   nargs="+"),
            option("--for TIME", "retract the facts after TIME, such as 10s, 500ms, 2m", dest="hold"),
            option("--grace TIME", "keep the facts for TIME after a lost connection, such as 10s"),
            option("--lease TIME", "keep the facts for TIME after this command or the daemon is killed"),
            option("--durable --owner NAME", "assert for the durable owner NAME, and return at once"),
            *_IF, _unchanged("one of the facts"),
        ),
        epilog="Give a program after --: dataspace assert 'busy(\"backup\")' -- ./backup.sh", check=_owned,
        at_prompt=(
            "Change",
            'assert task(1, "open")  assert for this shell: the fact lasts until the shell ends',
            'assert task(1, "open") --owner board  assert for a durable owner, until it is retracted',
        ),
    ),
    Command("retract", "retract facts that a durable owner or a lease asserts", "cli.once.turns:retract",
        (
            word("FACT", "a fact, or a pattern; - to read facts, one per line, from standard input",
                   nargs="+"),
            *one_of(
                option("--durable --owner NAME", "owner of the facts"),
                option("--lease NAME",
                       "the lease of the facts, as dataspace owners shows it: lease:60000:NAME; this renews"
                       " it"),
                required=True,
            ),
            *_IF, _unchanged("a fact that is named, or matches,"),
        ),
        epilog="A pattern retracts all that NAME asserts and the pattern matches: dataspace retract 'task(_,"
        " \"done\")' --durable NAME",
        at_prompt=(
            "Change",
            'retract task(_, "open")  retract facts of this shell, or with --owner NAME of that owner',
        ),
    ),
    Command("get", "print what matches now, and end", "cli.once.get:get",
        (word("PATTERN", "such as 'present($who)'"), *_FORMS),
        at_prompt=("Look", "get task($n, $state)  print what matches now; $name captures, _ is anything"),
        epilog="""\
examples:
  dataspace get 'present($who)'
  dataspace get 'task($id, "open", _)' --table
  dataspace get 'reading($device, $value)' --csv > readings.csv

Each row has what the pattern captures; a pattern without $NAME prints the facts that it matches.
The number of rows and the epoch of the state are printed to standard error.
""",
    ),
    Command("query", "join facts of one epoch by the body of a rule, print the rows, and end",
        "cli.once.get:query",
        (word("BODY", "such as 'task($id, $who), not done($id)'"), *_FORMS),
        at_prompt=("Look", 'query task($n, "open"), $n > 1  join facts by the body of a rule',),
        epilog="""\
examples:
  dataspace query 'task($id, $who), not done($id), $id > 3' --table
  dataspace query 'load($who, count($id)) <- task($id, $who)'
  dataspace query 'present($who)' --as-of 2026-11-22T09:00:00Z

BODY is the body of a rule: patterns, not, comparisons, arithmetic. It is evaluated once, over the facts of
one epoch; each distinct solution is a row, with a column for each variable. A head before <- names the
columns and may have aggregates (count, sum, avg, stddev, min, max, percentile, first, last, collect, top).
To keep what follows up to date, add it as a rule: dataspace rule add. The facts that the patterns match, at
most a million, are fetched and joined by this command.
""",
    ),
    Command("observe", "print what matches, and changes as they come", "cli.lasting.facts:observe",
        (
            word("PATTERN", "such as 'present($who)'"),
            JSON_LINES,
            option("--count N", "end after N changes", type=a.count),
            *one_of(
                option("--from EPOCH", "begin with this epoch, from the log", dest="since", type=a.epoch),
                _SINCE,
            ),
            option("--until EPOCH", "end with this epoch", type=a.epoch),
            flag("--progress", "also print up to which epoch all changes were printed"),
            flag("--conflate", "with --from or --since: print only the net difference of the past"),
            flag("--changes-only", "omit what matches already"),
            option("--exec COMMAND",
                   "print nothing; run COMMAND in a shell for each change, one at a time, with the change as"
                   " JSON on its standard input, and in $DATASPACE_CHANGE, $DATASPACE_EPOCH and"
                   " $DATASPACE_CAPTURE_NAME", dest="execute"),
            flag("--quiet", "assert no interest"),
            option("--pace DURATION",
                   "print changes at most once in DURATION, such as 100ms: the net difference of what waits"),
            option("--policy",
                   "what to do with changes that are not read in time (default: conflate, keep the net"
                   " difference)", choices=["conflate", "wait", "fail", "drop"], default="conflate"),
        ),
        check=_observed, follows=True,
        at_prompt=(
            "Look",
            "observe task($n, _)  print what matches, then each change, until Ctrl-C",
            "observe task($n, _) &  the same in the background: changes come before a prompt",
        ),
    ),
    CONSUME,
    Command("send", "send messages, in one turn",
        lambda args: "cli.lasting.facts:send" if args.message == ["-"] else "cli.once.turns:send",
        (
            word("MESSAGE",
                   "such as 'say(\"Alice\", \"hi\")'; - to send each line of standard input as it comes",
                   nargs="+"),
            *_IF,
        ),
        check=_streamed,
        at_prompt=("Change", 'send say("hi")  send a message, which does not last'),
    ),
    Command("log", "print the changes of past epochs; check, compact, export or copy a log",
        epilog="dataspace log PATTERN is short for dataspace log read PATTERN.", otherwise="read",
    ),
    Command("log read", "print the changes of past epochs from a daemon", "cli.lasting.facts:log",
        (
            _PAST,
            *one_of(_FROM, _SINCE),
            _UNTIL,
            flag("--follow", "continue with new epochs as they come"),
            flag("--who", "also print owner, client and token of each change"),
            JSON_LINES,
            option("--count N", "end after N changes", type=a.count),
        ),
        check=_range, follows=True,
        at_prompt=("Look", "log task($n, _) --from 1  print the changes of past epochs"),
    ),
    VERIFY,
    Command("log compact", "free disk space; the daemon must not be running", "log_commands:compact_log",
        (*STORE, *KEEPING),
        is_client=False,
    ),
    Command("log export", "write changes to a file", "log_commands:export_log",
        (
            *STORE,
            _PAST, _FROM, _UNTIL,
            option("--format", "format of the file (default jsonl)", choices=["jsonl", "msgpack", "parquet"],
                   default="jsonl"),
            option("--output FILE", "write to FILE (default: standard output)", type=a.path),
            flag("--state", "write the state before the first epoch, as additions"),
        ),
        is_client=False, check=_range,
    ),
    COPY,
    *ARCHIVE,
    Command("rule", "add, list and explain rules",
        description="Rules derive facts from facts, for as long as a rule(name, text) is asserted.",
        epilog="""\
examples:
  dataspace rule add near 'near($x, $y) <- at($x, $place), at($y, $place), $x != $y.' --durable map
  dataspace rule add crowd 'crowd($place, count($x)) <- at($x, $place).'
  dataspace rule add all @my.rules
  dataspace rule why 'near("Alice", _)'
  dataspace rule why-not 'near("Alice", "Bob")'
  dataspace rule graph > rules.mmd
""",
    ),
    Command("rule add", "add a rule until Ctrl-C, or durably in place of the one before",
        "cli.lasting.rule:add",
        (
            word("NAME"),
            word("TEXT", "such as 'near($x) <- at($x, _).', or @FILE"),
            option("--durable OWNER", "add the rule for the durable owner OWNER; else until Ctrl-C"),
        ),
    ),
    Command("rule remove", "remove a rule that was added durably", "cli.once.rule:remove",
        (word("NAME"), option("--durable OWNER", "owner that the rule was added for", required=True)),
    ),
    Command("rule resume", "evaluate again a rule that was suspended", "cli.once.rule:resume",
        (word("NAME"),)),
    Command("rule list", "list the rules, and what is wrong with them", "cli.once.rule:list_",
        (JSON_LINES,)),
    Command("rule test", "run rules against given facts and expectations, without a daemon",
        "cli.once.rule_tests:test",
        (word("FILE", "rules, a line ---, and statements", name="files", nargs="+"),
         option("--config FILE", "take limits and functions of rules from the configuration of a daemon")),
        epilog="""\
A file has rules, a line ---, and then statements:
  assert FACT, FACT          one turn; also retract and send: retract p(1) and assert p(2)
  after 10 s                 let time pass; at @2026-01-01T00:00:00Z sets it
  expect PATTERN             a fact that matches holds; not PATTERN: none holds
  expect sent PATTERN        such a message was sent since the last turn or after
  expect PATTERN = [FACTS]   exactly these facts match
  rules "more.rules"         also carry out the rules of a file

  hot($d) <- temp($d, $v), $v > 90.
  ---
  assert temp("a", 95), temp("b", 20)
  expect hot("a"), not hot("b")
""",
        is_client=False,
    ),
    Command("rule explain", "show how the rules are evaluated", "cli.once.rule:ask", (JSON_LINES,)),
    Command("rule why", "show a proof of a fact", "cli.once.rule:ask",
        (word("FACT", "a fact, or a pattern for the first fact that it matches", name="about"), JSON_LINES),
        at_prompt=("Understand", "why waiting(1)  print a proof of a derived fact"),
    ),
    Command("rule why-not", "show what is missing for a fact to be derived", "cli.once.rule:ask",
        (word("PATTERN", name="about"), JSON_LINES),
        at_prompt=("Understand", "why-not waiting(2)  print what is missing for it"),
    ),
    Command("rule monotone", "list the rules that need no coordination", "cli.once.rule:ask",
        (JSON_LINES,)),
    Command("rule graph", "draw strata and handoffs, also of hosted flows, as a mermaid flowchart",
        "cli.once.rule:ask",
    ),
    Command("topic", "publish and subscribe to streams of epochs"),
    Command("topic publish", "publish values, or the lines of standard input, each as an epoch of its own",
        "topics.commands:publish",
        (
            word("TOPIC"),
            word("VALUE", "publish in one epoch (default: read lines from standard input)", nargs="*",
                   default=[]),
            flag("--times", "read the time at the start of each line"),
            option("--time TIME", "begin here, such as 5, or [1, 2] for two dimensions"),
            option("--partition N", "publish to partition N (default 0)", type=a.number, default=0),
            option("--partitions N", "number of partitions (default 1)", type=a.number, default=1),
            option("--dimensions N", "length of the tuples that are times (default 0: plain numbers)",
                   type=a.number, default=0),
            option("--retain BYTES", "keep for later subscribers, such as 64MiB"),
            flag("--durable", "keep the topic on the daemon's disk, also without publishers"),
            option("--keep-for TIME", "delete older epochs of a durable topic, such as 7d (default: keep)"),
            option("--name NAME", "name by which another process can resume it", default=""),
            option("--away TIME",
                   "time without connection before the publisher counts as crashed (default 0s)",
                   default="0s"),
        ),
        epilog='With --times each line begins with its time: 7 reading("d1", 21.5); times do not go back.',
    ),
    Command("topic subscribe", "print epochs once they are complete", "topics.commands:subscribe",
        (
            word("TOPIC"),
            repeated("--partition N", "subscribe to partition N; may be given several times (default: all)",
                   type=a.number),
            option("--from TIME", "begin at TIME, with what is retained", dest="since"),
            option("--until TIME", "end before this time"),
            flag("--progress", "also print the frontier as it moves"),
            flag("--torn", "also print the rest of epochs that had begun"),
            option("--count N", "end after N epochs", type=a.count),
            JSON_LINES,
        ),
        follows=True,
    ),
    Command("topic list", "list topics with their publishers and subscribers", "topics.commands:list_",
        (JSON_LINES,)),
    Command("topic read", "print completed epochs of a durable topic, by number, and end",
        lambda args: "archiving.commands.archive:topic" if args.archive else "topics.commands:read",
        (
            word("TOPIC"),
            option("--after N", "begin after this number (default: the oldest retained)", type=a.number),
            option("--until N", "end with this number (default: the newest)", type=a.epoch_or_zero),
            option("--archive PREFIX", "read the archive there, without a daemon"),
            JSON_LINES,
        ),
        epilog="A number stands for the same epoch each time.", check=_range,
    ),
    Command("topic end", "end a durable topic without publishers", "topics.commands:end",
        (word("TOPIC"),)),
    Command("shell", "read commands at a prompt, or from standard input, on one connection",
        "cli.shell.run:shell",
        description="Commands are those of dataspace without its name, and facts need no quotes.",
        epilog="""\
examples:
  dataspace shell
  echo 'get task($n, $state) --json' | dataspace shell

The command help at the prompt shows what there is. What is asserted without --owner lasts until the shell
ends. From standard input, one command on a line, the first that fails ends it with exit code 1.
""",
    ),
    Command("completion", "print a script by which a shell completes commands and options",
        "cli.once.completion:completion",
        (word("SHELL", "bash, zsh or fish", choices=["bash", "zsh", "fish"]),),
        is_client=False, description="The script is loaded once; a Tab runs nothing.",
        epilog="""\
  bash  source <(dataspace completion bash)                 in ~/.bashrc
  zsh   source <(dataspace completion zsh)                  in ~/.zshrc, after compinit
  fish  dataspace completion fish > ~/.config/fish/completions/dataspace.fish
""",
    ),
    Command("demo", "show what a dataspace does, in about twenty seconds", "cli.demo.run:demo",
        (
            option("--speed N", "N times as fast (default 1)", type=a.speed, default=1.0),
            option("--worker NAME", argparse.SUPPRESS),
            option("--daemon URL", argparse.SUPPRESS),
        ),
        is_client=False,
        description="Three workers take tasks from a board; one is killed in the middle of a task, which"
        " goes back to the board, and the rules say why.",
        epilog="It runs a daemon of its own on a free port, and leaves nothing behind. On a terminal the"
        " board is drawn if rich is installed: pip install 'dataspace-server[terminal]'",
    ),
)
# fmt: on

ROWS: Final = (*USING, *OPERATING)

BY_NAME: Final = {row.name: row for row in ROWS}


def verbs_of(row: Command) -> list[Command]:
    """Returns the rows of a command's verbs; none for a command without verbs."""
    return [each for each in ROWS if each.verb and each.command == row.name]
