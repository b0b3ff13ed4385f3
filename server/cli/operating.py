"""The rows of the table for operators: the daemon, what it shows of itself, tokens, backups."""

from __future__ import annotations

import argparse
from typing import Final

from server.cli import arguments as a
from server.cli.arguments import JSON, JSON_LINES, Command, flag, option, repeated, titled, word
from server.cli.clustering import CLUSTER, WAIT
from server.cli.dividing import GROUPS

STORE: Final = (
    option(
        "--data PLACE",
        "directory of the log, or the address of a store (default ~/.local/state/dataspace)",
        type=a.place,
    ),
    option("--space NAME", "the log of this space (default main)"),
    WAIT,
)
KEEPING: Final = (
    option("--keep-for TIME", "delete epochs older than TIME, such as 7d (default: keep)"),
    option("--keep-bytes SIZE", "delete the oldest epochs beyond SIZE, such as 10GiB"),
    flag(
        "--keep-unread",
        "delete epochs that all named readers acknowledged; unread ones are always kept, up to 8GiB",
    ),
)
QUIET: Final = flag("--quiet", "show no progress")
_ORDERS: Final = ["session", "turns", "waiting", "lag"]

# A table: an argument is one line where it fits.
# fmt: off
COPY: Final = Command(
    "log copy", "copy logs, durable topics and staged batches to another directory or store",
    "copies.copying:copy",
    (
        option("--from PLACE", "a data directory or a backup, or postgresql://HOST/DB?schema=NAME",
               type=a.place, dest="source", required=True),
        option("--to PLACE", "a new or empty directory, or a store without these logs", type=a.place,
               dest="target", required=True),
        option("--space NAME", "copy the log of this space alone (default: all spaces and topics)"),
        WAIT,
        QUIET,
    ),
    is_client=False,
    epilog="""\
examples:
  dataspace log copy --from ./data --to 'postgresql://db1,db2/app?schema=ds'
  dataspace log copy --from 'postgresql://db1,db2/app?schema=ds' --to ./data

The copy has the identity and the numbers of its original, so clients, readers and Spark's queries go on with
it: end the daemons of the original first, and serve one of the two. A directory in use is refused; a store
is copied as of the moment when this begins, and what its daemons write later is not in the copy. All of it
is verified. Ctrl-C leaves a part that no daemon starts with; the same command continues.
""",
)
_PREFIX: Final = word("PREFIX", "directory or URL of the archive, such as s3://bucket/prefix")
_IDENTITY: Final = option("--identity ID", "the archive of this log, where a space has several")
VERIFY: Final = Command(
    "log verify", "check that nothing is missing or altered",
    lambda args: "log_commands:verify_log" if args.archive is None else "archiving.commands.archive:verify",
    (
        *STORE,
        option("--archive PREFIX", "check the archive there instead of a log"),
        flag("--deep", "check each segment of the archive, and its columns against the segments, as well"),
        _IDENTITY,
        JSON,
    ),
    is_client=False,
)
ARCHIVE: Final = (
    Command("log archive", "write a log's past to an archive, once", "archiving.commands.archive:archive",
        (
            _PREFIX,
            *STORE[:1],
            option("--space NAME", "archive the log of this space alone (default: all spaces)"),
            flag("--merge", "also merge neighbouring ranges, up to 4 million changes"),
            option("--cluster LABEL=FIELD", "order rows of merged ranges by fields, such as flight=1:0"),
            flag("--for-daemon", argparse.SUPPRESS),
            JSON,
            QUIET,
        ),
        is_client=False,
        epilog="""\
examples:
  dataspace log archive ./archive --data ./data
  dataspace log archive s3://bucket/prefix --data 'postgresql://db1,db2/app?schema=ds'

It adds what the archive lacks, reads back what it wrote, and deletes nothing; the daemon may be running. A
daemon archives by itself with the setting log.archive.
""",
    ),
    Command("log files", "list the objects of an archive, for other programs to read",
        "archiving.commands.archive:files",
        (
            _PREFIX,
            word("PATTERN", "list only the Parquet files that may have facts of it, such as 'flight($id, _)'",
                 nargs="?"),
            option("--space NAME", "the archive of this space (default main)"),
            _IDENTITY,
            option("--topic NAME", "the archive of a durable topic, by its name or number"),
            option("--version N", "as of this version (default: the newest)", type=a.number),
            option("--as-of EPOCH", "list what the facts after EPOCH follow from: a state and changes since",
                   type=a.number),
            JSON_LINES,
        ),
        is_client=False,
    ),
    Command("log delta", "make or update Delta tables over an archive, and print where they are",
        "archiving.commands.archive:delta",
        (
            _PREFIX,
            word("PATTERN", "only the tables that may have facts of it, such as 'flight($id, _)'", nargs="?"),
            option("--space NAME", "the archive of this space (default main)"),
            _IDENTITY,
            JSON_LINES,
        ),
        is_client=False,
        epilog="""\
A table has all archived changes of one label and number of fields. It lies in the archive and names its
objects, so nothing is copied. Only this command writes to it: run it again for what was archived since.
""",
    ),
    Command("log erase", "erase facts and messages of the past from an archive",
        "archiving.commands.erasing:erase_past",
        (
            word("PATTERN", "erase what matches it, such as 'person(\"p17\")'"),
            option("--before TIME", "erase what was made before TIME, or so long ago, such as 30d",
                   type=a.since, required=True),
            option("--archive PREFIX", "erase from the archive there, without a daemon"),
            option("--by NAME", "with --archive: who erases, for its record (default: the user)"),
            option("--identity ID", "with --archive: of this log, where a space has several"),
            JSON,
        ),
        epilog="""\
examples:
  dataspace log erase 'person("p17")' --before 30d
  dataspace log erase 'person("p17")' --before 30d --archive s3://bucket/prefix

Erased are messages, and facts that were removed by then, with all that was said of them; facts that still
hold stay. Each becomes erased() in its place. Objects that had it are deleted at once. The daemon needs the
right administer; with --archive whoever may write the archive may erase, and the daemon may be running.
""",
    ),
)
OPERATING: Final = (
    Command("serve", "run the daemon in the foreground", "daemon.command:serve_command",
        (
            option("--config FILE", "read this TOML file (or $DATASPACE_SERVE_CONFIG)"),
            flag("--check", "print the settings and where each comes from; run nothing"),
            option("--ready-fd N",
                   "write the addresses to descriptor N when the daemon listens, and close it",
                   type=a.number),
            *titled("metrics and logs",
                option("--admin HOST:PORT",
                       "serve /metrics, /healthz and /readyz over HTTP, such as on 127.0.0.1:7379 (default:"
                       " do not)"),
                flag("--verbose", "log every session"),
                option("--log-format FORMAT", "write log lines as text or json (default text)"),
                option("--log-level LEVEL", "write debug, info, warning or error on (default warning)"),
                option("--audit FILE",
                       "append refused logins and rights, and administrative acts, to FILE as JSON lines",
                       type=a.path),
                option("--traces URL",
                       "send OpenTelemetry spans of turns to a collector, such as http://127.0.0.1:4318"
                       " (default: make none)"),
                option("--traces-ratio SHARE",
                       "trace this share of the turns that state no trace of their own, from 0 to 1"
                       " (default 0.01)"),
            ),
            *titled("access",
                repeated("--listen ADDRESS",
                       "listen on tcp:HOST:PORT, tls:HOST:PORT or unix:/PATH, or for browsers and curl on"
                       " http:HOST:PORT or https:HOST:PORT; may be given several times; port 0 picks a free"
                       " one (default tcp:127.0.0.1:7377)"),
                option("--socket-mode MODE", "permissions of Unix sockets (default 0600)"),
                option("--tls-certificate FILE", "certificate for tls: addresses (PEM)"),
                option("--tls-key FILE", "key of the certificate, if in another file"),
                option("--tls-client-ca FILE", "require client certificates signed by these"),
                option("--heartbeat TIME",
                       "send a ping after TIME without other data; close the connection after twice that"
                       " (default 15s)"),
                option("--grace TIME",
                       "keep sessions for at most TIME after a lost connection (default 5m); 0s for none"),
            ),
            *titled("data",
                option("--data PLACE",
                       "directory of the log, or a store that daemons share, postgresql://HOST/DB?schema=NAME"
                       " (default ~/.local/state/dataspace)"),
                option("--follow DIR",
                       "serve readers from the log of the daemon that runs on DIR, on this machine"),
                flag("--stand-by", "with --follow: lead once that daemon has ended"),
                option("--followers N",
                       "start N followers of this daemon, which serve readers, and keep them running"),
                repeated("--readers ADDRESS",
                       "with --followers: let them listen on ADDRESS, as for --listen, and share its"
                       " connections; may be given several times"),
                option("--advertise URL", "the address by which clients reach this daemon, if another"),
                repeated("--host-space NAME", "host another dataspace beside main"),
                flag("--accept-damage", "start with a log that lost its end, and log what is missing"),
                *KEEPING,
                option("--archive PREFIX", "archive history to a directory, or a URL such as s3://bucket/prefix"),
            ),
            *titled("rules, actors and flows",
                repeated("--rules FILE", "add the rules in FILE; may be given several times", type=a.path,
                       default=[]),
                flag("--without-rules",
                       "evaluate no rules; they stay facts, so that a harmful one can be retracted"),
                repeated("--actor MODULE:FUNCTION", "host an actor; may be given several times"),
                repeated("--flow MODULE:FUNCTION",
                       "run a flow in the turns of main; may be given several times"),
                option("--trace FILE",
                       "write every turn of hosted actors to FILE, as a mermaid diagram if it ends in .mmd",
                       type=a.path),
            ),
        ),
        is_client=False,
        epilog="An option takes precedence over $DATASPACE_SERVE_NAME, and that over the file. SIGINT and"
        " SIGTERM end the daemon; SIGHUP reloads tokens, certificates, rules and limits.",
    ),
    Command("status", "show daemon status", "cli.once.status:status",
        (JSON,),
        at_prompt=("Understand", "status, sessions, index  show the daemon, its sessions, its index"),
    ),
    Command("index", "draw the daemon's index: the observers of each pattern", "cli.once.status:index",
        (
            option("--form", "format of the drawing (default text)", choices=["text", "mermaid", "dot"],
                   default="text"),
            option("--most N", "draw at most N of a kind (default 20)", type=a.number, default=20),
        ),
        epilog="dataspace index --form dot | dot -Tsvg > index.svg",
    ),
    Command("owners", "show who claims the facts that match a pattern", "cli.once.status:owners",
        (
            word("PATTERN", "pattern of the facts"),
            option("--most N", "show at most N claims (default 1000)", type=a.number, default=1000),
            JSON_LINES,
        ),
        epilog="Each line has the fact, its owner, the bearer of the token and the stamp of its token.",
        at_prompt=("Understand", "owners task(1, _)  show who asserts it"),
    ),
    Command("actors", "show hosted actors", "cli.once.status:actors", (JSON_LINES,)),
    Command("sessions", "show who is connected and how far behind, or end a session",
        "cli.once.sessions:sessions",
        (
            word("end", name="verb", nargs="?", choices=["list", "end"], default="list"),
            word("ID", "session to end, such as 2.5, from sessions or owners", name="number", nargs="?"),
            JSON_LINES,
            option("--sort", "order of the lines (default session: as they came)", choices=_ORDERS,
                   default="session"),
        ),
        epilog="dataspace sessions end ID ends one; that needs the right administer.",
    ),
    GROUPS,
    Command("top", "draw the daemon and its sessions on a terminal, again and again", "cli.lasting.top:top",
        (
            option("--every TIME", "time between two looks (default 2s)", default="2s"),
            option("--count N", "print N times and end", type=a.count),
            option("--sort", "order of the sessions, the highest first (default waiting)", choices=_ORDERS,
                   default="waiting"),
        ),
    ),
    Command("inspect", "open the inspector, the daemon's page, in a browser", "cli.once.inspector:inspect",
        (flag("--no-open", "print the address, and open no browser"),),
        epilog="The daemon must listen for HTTP: dataspace serve --listen http:127.0.0.1:7378. --url takes"
        " the address of the page as well, such as http://127.0.0.1:7378.",
    ),
    Command("token", "make a secret for a daemon, or a token with fewer rights",
        is_client=False, epilog="A token can be narrowed without the daemon: dataspace token narrow --help",
    ),
    Command("token new", "print a new random secret", "cli.once.token:new", is_client=False),
    Command("token narrow", "print a token with fewer rights, without the daemon", "cli.once.token:narrowed",
        (
            option("--token TEXT", "narrow this token (or $DATASPACE_TOKEN)"),
            option("--token-file FILE", "read the token from FILE (or $DATASPACE_TOKEN_FILE)"),
            *[
                            repeated(f"--{deny}{right} PATTERN", f"{said} {right} PATTERN{more}",
                         dest=f"{into}_{right}")
                            for right in ("assert", "send", "observe")
                            for deny, said, more, into in (
                                ("", "allow to", "", "may"),
                                ("deny-", "do not allow to", ", whatever else is allowed", "not"),
                            )
                        ],
            repeated("--stamp NAME=WORD", "mark all that the bearer claims with NAME=WORD"),
            repeated("--durable NAME", "allow the durable owner NAME"),
            repeated("--topic NAME", "allow the topic NAME"),
            repeated("--reader NAME", "allow the named reader NAME of a log"),
            repeated("--group NAME", "allow to consume from the group NAME"),
            option("--name NAME",
                   "name of the bearer; bearers of different names cannot use what belongs to one another"),
            flag("--rules", "allow to add rules"),
            flag("--inspect", "allow to inspect the daemon"),
            repeated("--space NAME", "allow only the dataspace NAME"),
            option("--for TIME", "expire after TIME, such as 8h or 30d", dest="lasting"),
        ),
        is_client=False,
    ),
    Command("backup", "copy the data of running or stopped daemons to a directory or a URL",
        "copies.backups:backup",
        (
            word("DIR|URL", "a new directory or an earlier backup, or s3://bucket/ds", name="target",
                   type=a.place),
            option("--data DIR|ADDRESS",
                   "the daemon's directory, on this machine (default ~/.local/state/dataspace), or its store,"
                   " such as postgresql://HOST/DB", type=a.place),
            option("--via DIR",
                   "with a URL: the backup on this machine that is copied there (default: DATA.backup)",
                   type=a.path),
            option("--rate SIZE", "copy at most SIZE in a second, such as 20MiB"),
            WAIT,
            QUIET,
        ),
        is_client=False,
        epilog="""\
examples:
  dataspace backup /backup/ds --data ./data
  dataspace backup /backup/ds --data 'postgresql://db1,db2/app?schema=ds' --rate 20MiB
  dataspace backup s3://backups/ds --data ./data --via /backup/ds

The daemon may be running: nothing waits for a backup. A directory that is an earlier backup of the same
log is brought up to date. Ctrl-C leaves an earlier backup whole; the same command continues.
A URL such as s3://bucket/ds needs dataspace-server[remote] and fsspec's backend for it; SERVE.md.
""",
    ),
    Command("restore", "make a data directory from a backup, of its end or of an earlier moment",
        "copies.backups:restore",
        (
            word("BACKUP", "directory of the backup, or its URL", type=a.place),
            word("DIR", "a new or empty directory", name="target", type=a.place),
            option("--at EPOCH|TIME",
                   "restore the state after this epoch of main, or at this time, such as"
                   " 2026-11-22T14:05:00Z (UTC where no offset is given)", type=a.moment),
            QUIET,
        ),
        is_client=False,
        epilog="""\
examples:
  dataspace restore /backup/ds ./data-2 --at 2026-11-22T14:05:00Z
  dataspace log copy --from ./data-2 --to 'postgresql://db1,db2/app?schema=ds2'

Clients find another dataspace there: epochs that they saw after that moment never happened. The second
command moves it on into a store.
""",
    ),
    *CLUSTER,
    Command("drain", "end a daemon: no new sessions, then the end when all have gone",
        "cli.once.sessions:drain",
        (
            option("--within TIME", "end sessions that are left after TIME (default 30s)", default="30s"),
            option("--reason TEXT", "what clients are shown, such as 'back at 14:10'", default=""),
        ),
        epilog="Needs the right administer. Clients reconnect by themselves.",
    ),
)
# fmt: on
