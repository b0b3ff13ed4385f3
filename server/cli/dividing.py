"""The rows of the table for groups, which divide a stream of work."""

from __future__ import annotations

from typing import Final

from server.cli import arguments as a
from server.cli.arguments import JSON_LINES, Command, flag, option, word

# A table: an argument is one line where it fits.
# fmt: off
EXCLUSIVE: Final = a.one_of(
    flag("--exclusive", "one member at a time gets jobs; the next takes over", default=None),
    flag("--no-exclusive", "all members get jobs (default)", dest="exclusive", action="store_false",
         default=None),
)
CONSUME: Final = Command("consume", "take jobs of a group, which divides what matches among its members",
    "groups.commands.consume:consume",
    (
        word("PATTERN", "such as 'job($id, $what)'; not needed to join a group", nargs="?"),
        option("--group NAME", "the group, which is made if there is none", required=True),
        option("--topic NAME", "divide the items of a durable topic: all, or those that match PATTERN"),
        option("--exec COMMAND",
               "print nothing; run COMMAND in a shell for each job, with the item as JSON on its standard"
               " input and as of observe --exec, and in $DATASPACE_JOB, $DATASPACE_ATTEMPT and"
               " $DATASPACE_TOKEN: status 0 is done, 75 is given back, any other a failed attempt",
               dest="execute"),
        option("--results OWNER",
               "with --exec: assert what COMMAND prints, a fact on a line, in the turn that reports the"
               " job as done"),
        option("--in-flight N", "jobs at once (default 1)", type=a.count, default=1),
        option("--start", "where a new group begins: now, held (with the facts that hold), an epoch (of a"
               " topic: its number) or a time (default now)", type=a.beginning, default="now"),
        option("--key NAME", "a capture: jobs of one key are done in order"),
        option("--ack-within TIME", "time for a job, until it goes to another member (default 30s)"),
        option("--attempts N", "failed attempts after which a job is a dead letter, 0 for no limit"
               " (default 5)", type=a.number),
        option("--backoff TIMES", "wait after a failed attempt: one time, which doubles (default 0.1s, up to"
               " 30s), or several such as 1s,5s,30s, the last for all further attempts"),
        option("--most-out N", "jobs that are out to all members together, 0 for no limit (default)",
               type=a.number),
        option("--rate N", "jobs that are handed out in a second, 0 for no limit (default)", type=float),
        *EXCLUSIVE,
        option("--kinds KINDS", "what is divided: + facts that appear, - facts that go (needs --key),"
               " ! messages (default +!); write --kinds=-"),
        option("--priority NAME", "a capture: jobs of a higher level, 0 to 15, come first"),
        JSON_LINES,
        option("--count N", "end after N jobs, with status 1 if one of them was not done", type=a.count),
    ),
    follows=True,
)
GROUPS: Final = Command("groups", "show groups that divide work, and change one",
    "groups.commands.groups:groups",
    (
        word("VERB", "list, out, peek, pause, resume, alter, retry, seek or delete", name="verb",
             nargs="?", default="list",
             choices=["list", "out", "peek", "pause", "resume", "alter", "retry", "seek", "delete"]),
        word("NAME", "the group", name="name", nargs="?"),
        word("PLACE", "of seek: an epoch, a time, or now; of retry: a pattern of jobs", name="place",
             nargs="?"),
        JSON_LINES,
        option("--ack-within TIME", "of alter: time from when a program takes a job until it goes to"
               " another member"),
        option("--attempts N", "of alter: failed attempts after which a job is dead; 0: never",
               type=a.number),
        option("--window N", "of alter: undone jobs that the daemon takes into memory", type=a.number),
        option("--backoff TIMES", "of alter: wait after a job's first failed attempt, which doubles; or"
               " several such as 1s,5s,30s"),
        option("--most-out N", "of alter: jobs that are out to all members together; 0: no limit",
               type=a.number),
        option("--rate N", "of alter: jobs that are handed out in a second; 0: no limit", type=float),
        *EXCLUSIVE,
        option("--most N", "of peek: jobs that are shown (default 100)", type=a.number),
    ),
    epilog="dataspace groups list NAME shows that group alone; out NAME shows which member has which job;"
    " peek NAME what waits as well;"
    " seek NAME EPOCH begins anew with that epoch; retry NAME hands out dead letters again.",
)
