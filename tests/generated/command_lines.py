"""A command line that each row of the table of commands accepts, where each finds what it needs.

``DATA`` stands for the directory of the daemon, ``PLACE`` for one of the test, ``ARCHIVE`` for an archive of
it, ``SESSION`` for a session that may end.  What needs the daemon to have ended stands behind ``drain``.
"""

from __future__ import annotations

from typing import Final

LINES: Final[dict[str, str]] = {
    "serve": "--check --data PLACE/none",
    "assert": "made(1) --durable me",
    "put": "config(1,2) --durable me",
    "retract": "cause(_) --durable me",
    "get": "any($n)",
    "query": "any($n)",
    "observe": "any($n) --count 1",
    "consume": "any($n) --group any --start held --exec true --count 1",
    "groups list": "",
    "groups out": "any",
    "groups peek": "any",
    "groups pause": "any",
    "groups resume": "any",
    "groups alter": "any --attempts 3",
    "groups retry": "any any($n)",
    "groups seek": "any now",
    "groups delete": "any",
    "send": "said(1)",
    "log read": "any($n) --count 1",
    "rule add": "r 'p($n)<-any($n).' --durable me",
    "rule list": "",
    "rule test": "PLACE/rules",
    "rule explain": "",
    "rule why": "p(1)",
    "rule why-not": "p(2)",
    "rule monotone": "",
    "rule graph": "",
    "rule resume": "bad",
    "rule remove": "r --durable me",
    "topic publish": "read 1 --durable",
    "topic subscribe": "read --from 0 --count 1",
    "topic list": "",
    "topic read": "read",
    "topic end": "read",
    "shell": "",
    "completion": "bash",
    "status": "",
    "index": "",
    "owners": "any($n)",
    "actors": "",
    "sessions list": "",
    "sessions end": "SESSION",
    "top": "--count 1",
    "inspect": "--no-open",
    "token new": "",
    "token narrow": "--token secret --name guest",
    "backup": "PLACE/backup --data DATA",
    "drain": "--within 0s",
    "restore": "PLACE/backup PLACE/restored",
    "log verify": "--data DATA",
    "log export": "--data DATA --output PLACE/exported",
    "log copy": "--from DATA --to PLACE/copied",
    "log compact": "--data DATA --keep-bytes 10GiB",
    "log archive": "ARCHIVE --data DATA",
    "log files": "ARCHIVE",
    "log delta": "ARCHIVE",
    "log erase": "said(_) --before 2030-01-01T00:00:00Z --archive ARCHIVE",
}

ELSEWHERE: Final = {
    "demo": "plays with four processes of its own: tests/server/cli/test_demo.py",
    "cluster status": "needs PostgreSQL: tests/server/upkeep/test_compose.py",
    "cluster move": "needs PostgreSQL: tests/server/cluster/test_spread.py",
    "cluster drain": "needs PostgreSQL: tests/server/cluster/test_drained.py",
    "cluster resume": "needs PostgreSQL: tests/server/cluster/test_drained.py",
    "cluster upgrade": "needs PostgreSQL: tests/server/cluster/test_levels.py",
}
"""Rows whose acceptance costs more than a command line."""
