"""The commands about the daemons that share a store, as a table."""

from __future__ import annotations

from typing import Final

from server.cli import arguments as a
from server.cli.arguments import JSON, Command, option, word

WAIT: Final = option("--wait TIME", "wait for a store that is away, such as 30s", default="0s")
_STORE: Final = option("--data ADDRESS", "the store: postgresql://HOST/DB?schema=NAME", type=a.place)
_ASKED: Final = option(
    "--data ADDRESS", "ask this store, postgresql://HOST/DB?schema=NAME, and no daemon", type=a.place
)

# fmt: off
CLUSTER: Final = (
    Command("cluster", "look at the daemons that share a store, and say which of them leads",
        description="Daemons with one --data postgresql://HOST/DB?schema=NAME are a cluster; one leads each"
                    " space.",
        is_client=False,
    ),
    Command("cluster status", "print which daemons use a store in PostgreSQL, and which of them leads",
        "cluster.commands:cluster_status",
        (
            _STORE,
            WAIT,
            JSON,
        ),
        is_client=False,
        epilog="A daemon that was killed or cut off is shown as gone until it is back, for a day. The exit"
               " code is 1 if a space has no leader.",
    ),
    Command("cluster move", "have another daemon lead a space",
        "cluster.commands:cluster_move",
        (
            word("SPACE", "the space, as `cluster status` names it"),
            word("DAEMON", "the daemon that is to lead it, by its cluster.name"),
            _STORE,
            option("--within TIME", "how long the move may take (default 30s)", default="30s"),
            WAIT,
        ),
        is_client=False,
        epilog="Sessions with grace go on there. A leader of main hands over all that it leads, and may take"
               " the other spaces again.",
    ),
    Command("cluster drain", "have a daemon hand over all that it leads, until it is resumed",
        "cluster.commands:cluster_drain",
        (
            word("DAEMON", "the daemon, by its cluster.name; it may be down"),
            _ASKED,
            option("--within TIME", "how long that may take (default 30s)", default="30s"),
        ),
        epilog="""\
examples:
  dataspace cluster drain two --url tcp://one:7377
  dataspace cluster drain two --data 'postgresql://db1,db2/app?schema=ds'

Ask any daemon of the cluster, with the right administer, or the store. Each space is printed once another
daemon leads it. The daemon goes on to follow, and stays drained when it is started again. It leads only while
no other daemon lives. With exit code 1 it stays drained, but has not handed over all in time.
""",
    ),
    Command("cluster resume", "have a drained daemon lead again", "cluster.commands:cluster_resume",
        (
            word("DAEMON", "the daemon, by its cluster.name"),
            _ASKED,
        ),
        epilog="It is given spaces as before it was drained: those that prefer it, its share of those that"
               " are free, and others that are spared.",
    ),
    Command("cluster upgrade", "allow features that earlier versions do not know, once no daemon is older",
        "cluster.commands:cluster_upgrade",
        (_STORE,),
        is_client=False,
        epilog="It is the last step of an upgrade: earlier versions cannot use the store afterwards.",
    ),
)
# fmt: on
