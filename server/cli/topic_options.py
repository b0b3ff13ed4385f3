"""What ``dataspace topic`` can be told; apart from what it does, which loads the client.

Always: loading this costs no more than argparse.
"""

from __future__ import annotations

import argparse


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """The part of the command line that is about topics."""
    topic = commands.add_parser("topic", help="publish and follow streams of epochs")
    verbs = topic.add_subparsers(dest="verb", metavar="VERB", required=True)
    _publish_parser(verbs, client)
    _subscribe_parser(verbs, client)
    listed = verbs.add_parser("list", parents=[client], help="what topics there are, and who uses them")
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    _read_parser(verbs, client)
    ended = verbs.add_parser("end", parents=[client], help="end a durable topic that nobody publishes to")
    ended.add_argument("topic", metavar="TOPIC")


def _publish_parser(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    told = verbs.add_parser(
        "publish",
        parents=[client],
        help="publish values, or the lines of standard input, each an epoch of its own",
        epilog='With --times each line begins with its time: 7 reading("d1", 21.5); times do not go back.',
    )
    told.add_argument("topic", metavar="TOPIC")
    told.add_argument(
        "value", nargs="*", metavar="VALUE", help="all in one epoch; without any, lines are read"
    )
    told.add_argument("--times", action="store_true", help="lines begin with their times")
    told.add_argument(
        "--time", metavar="TIME", help="where to begin, such as 5, or [1, 2] for two dimensions"
    )
    told.add_argument("--partition", type=int, default=0, metavar="N", help="which one (default 0)")
    told.add_argument("--partitions", type=int, default=1, metavar="N", help="how many there are (default 1)")
    told.add_argument("--dimensions", type=int, default=0, metavar="N", help="times are tuples of so many")
    told.add_argument("--retain", metavar="BYTES", help="kept for later subscribers, such as 64MiB")
    told.add_argument(
        "--durable", action="store_true", help="kept on the daemon's disk, also while nobody publishes"
    )
    told.add_argument("--keep-for", metavar="TIME", help="of a durable topic, such as 7d (default: any time)")
    told.add_argument("--name", default="", help="by which another process takes this publication up")
    told.add_argument(
        "--away", metavar="TIME", default="0s", help="how long it may be cut off before it has crashed"
    )


def _read_parser(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    told = verbs.add_parser(
        "read",
        parents=[client],
        help="print what a durable topic has completed, by number, and end",
        epilog="A number stands for the same epoch each time.",
    )
    told.add_argument("topic", metavar="TOPIC")
    told.add_argument(
        "--after", type=int, metavar="N", help="begin after this number (default: the oldest held)"
    )
    told.add_argument("--until", type=int, metavar="N", help="end with this number (default: the newest)")
    told.add_argument("--json", action="store_true", help="one JSON object a line")


def _subscribe_parser(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    told = verbs.add_parser("subscribe", parents=[client], help="print epochs once they are complete")
    told.add_argument("topic", metavar="TOPIC")
    told.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="may be given several times (default: all)",
    )
    told.add_argument("--from", dest="since", metavar="TIME", help="begin there, with what is retained")
    told.add_argument("--until", metavar="TIME", help="end before this time")
    told.add_argument("--wait", metavar="TIME", default="0s", help="for the topic to appear, such as 30s")
    told.add_argument("--progress", action="store_true", help="print the frontier, too, as it moves")
    told.add_argument("--torn", action="store_true", help="also what is left of epochs that had begun")
    told.add_argument("--count", type=int, metavar="N", help="end after N epochs")
    told.add_argument("--json", action="store_true", help="one JSON object a line")
