"""The options of ``dataspace topic``; apart from the commands, which load the client.

Always: loading this costs no more than argparse.
"""

from __future__ import annotations

import argparse


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    """Adds the commands about topics."""
    topic = commands.add_parser("topic", help="publish and subscribe to streams of epochs")
    verbs = topic.add_subparsers(dest="verb", metavar="VERB", required=True)
    _publish_parser(verbs, client)
    _subscribe_parser(verbs, client)
    listed = verbs.add_parser(
        "list", parents=[client], help="list topics with their publishers and subscribers"
    )
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    _read_parser(verbs, client)
    ended = verbs.add_parser("end", parents=[client], help="end a durable topic without publishers")
    ended.add_argument("topic", metavar="TOPIC")


def _publish_parser(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    command = verbs.add_parser(
        "publish",
        parents=[client],
        help="publish values, or the lines of standard input, each as an epoch of its own",
        epilog='With --times each line begins with its time: 7 reading("d1", 21.5); times do not go back.',
    )
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "value",
        nargs="*",
        default=[],
        metavar="VALUE",
        help="publish in one epoch (default: read lines from standard input)",
    )
    command.add_argument("--times", action="store_true", help="read the time at the start of each line")
    command.add_argument("--time", metavar="TIME", help="begin here, such as 5, or [1, 2] for two dimensions")
    command.add_argument(
        "--partition", type=int, default=0, metavar="N", help="publish to partition N (default 0)"
    )
    command.add_argument(
        "--partitions", type=int, default=1, metavar="N", help="number of partitions (default 1)"
    )
    command.add_argument(
        "--dimensions",
        type=int,
        default=0,
        metavar="N",
        help="length of the tuples that are times (default 0: plain numbers)",
    )
    command.add_argument("--retain", metavar="BYTES", help="keep for later subscribers, such as 64MiB")
    command.add_argument(
        "--durable", action="store_true", help="keep the topic on the daemon's disk, also without publishers"
    )
    command.add_argument(
        "--keep-for",
        metavar="TIME",
        help="delete older epochs of a durable topic, such as 7d (default: keep)",
    )
    command.add_argument("--name", default="", help="name by which another process can resume it")
    command.add_argument(
        "--away",
        metavar="TIME",
        default="0s",
        help="time without connection before the publisher counts as crashed",
    )


def _read_parser(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    command = verbs.add_parser(
        "read",
        parents=[client],
        help="print completed epochs of a durable topic, by number, and end",
        epilog="A number stands for the same epoch each time.",
    )
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "--after", type=int, metavar="N", help="begin after this number (default: the oldest retained)"
    )
    command.add_argument(
        "--until", type=epoch_number, metavar="N", help="end with this number (default: the newest)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object per line")


def _subscribe_parser(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    command = verbs.add_parser("subscribe", parents=[client], help="print epochs once they are complete")
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="subscribe to partition N; may be given several times (default: all)",
    )
    command.add_argument("--from", dest="since", metavar="TIME", help="begin at TIME, with what is retained")
    command.add_argument("--until", metavar="TIME", help="end before this time")
    command.add_argument("--progress", action="store_true", help="also print the frontier as it moves")
    command.add_argument("--torn", action="store_true", help="also print the rest of epochs that had begun")
    command.add_argument("--count", type=int, metavar="N", help="end after N epochs")
    command.add_argument("--json", action="store_true", help="print one JSON object per line")


def epoch_number(text: str, least: int = 0) -> int:
    """Returns the number of an epoch that an option names, which is ``least`` at least."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no epoch, give {least} or more")
    return int(text)
