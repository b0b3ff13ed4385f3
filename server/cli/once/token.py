"""The command ``dataspace token``: makes secrets, and narrows tokens.

Always: neither needs a daemon; only the token is printed to the standard output.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from dataspace.errors import UsageError
from dataspace.transport.credentials import default_token, read_token
from dataspace.transport.tokens import narrow, new_secret
from index.values.values import Map, Value
from server.config.principals import NAME, checked_name
from server.config.rights import PATTERNS, Rights
from server.config.units import duration


def new(_args: argparse.Namespace) -> int:
    """Prints a new secret."""
    print(new_secret())
    return 0


def narrowed(args: argparse.Namespace) -> int:
    """Prints a token with the rights in the options."""
    print(narrow(_given(args), caveat(args)))
    return 0


def _given(args: argparse.Namespace) -> str:
    token: str = read_token(args.token_file) if args.token_file else args.token or default_token()
    if not token:
        raise UsageError("no token; give --token-file or --token, or set $DATASPACE_TOKEN")
    return token


def caveat(args: argparse.Namespace) -> Map:
    """Returns the rights in the options; raises ``UsageError`` if they are invalid, or restrict nothing."""
    listed: dict[str, Value] = {}
    names = {
        "assert": args.may_assert,
        "send": args.may_send,
        "observe": args.may_observe,
        "durable": args.durable,
        "topics": args.topic,
        "readers": args.reader,
        "groups": args.group,
        "spaces": args.space,
    }
    listed |= {name: tuple(given) for name, given in names.items() if given}
    listed |= {name: True for name in ("rules", "inspect") if getattr(args, name)}
    denied: dict[str, Value] = {
        name: tuple(given) for name in PATTERNS if (given := getattr(args, f"not_{name}"))
    }
    if denied:
        listed["deny"] = Map(denied)
    if args.stamp:
        listed["stamp"] = Map(dict([_pair(each) for each in args.stamp]))
    if args.lasting:
        until = datetime.now(UTC) + timedelta(seconds=duration(args.lasting))
        listed["until"] = until.replace(microsecond=0)
    Rights.read(Map(listed))  # errors are reported here rather than by the daemon
    if args.name is not None:
        listed[NAME] = checked_name(args.name)
    if not listed:
        raise UsageError("no restriction; give the rights that the token keeps, --for a time, or a --name")
    return Map(listed)


def _pair(text: str) -> tuple[str, str]:
    """Returns the two words of ``NAME=WORD``."""
    name, sign, word = text.partition("=")
    if not sign:
        raise UsageError(f"a stamp is NAME=WORD, not {text!r:.80}")
    return name, word
