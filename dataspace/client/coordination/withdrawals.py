"""Withdrawals: what a durable owner asserts is retracted by pattern, without the handles of its claims.

Always: a withdrawal without an answer is sent again after a lost connection, and then retracts what is left.
"""

from __future__ import annotations

from dataspace.client.session.session import ClientSession
from dataspace.client.session.turns import check_durable
from dataspace.errors import Broken, UsageError
from index.patterns.patterns import Pattern
from index.patterns.text import parse_pattern
from index.values.values import Map


async def withdraw(session: ClientSession, pattern: Pattern | str, owner: str) -> int:
    """Retracts what the owner asserts and the pattern matches; returns how many claims the last request
    retracted, which is all of them unless the connection was lost."""
    if not owner:
        raise UsageError("withdraw retracts what a durable owner asserts: name it, withdraw(…, owner=NAME)")
    if session.lease is None:
        check_durable(owner)
    told = Map({"owner": owner, "pattern": parse_pattern(pattern) if isinstance(pattern, str) else pattern})
    while True:
        try:
            answer = await session.request("withdraw", told)
        except Broken:
            if not session.is_open:
                raise
        else:
            assert isinstance(answer, Map) and isinstance(answer["retracted"], int)  # by WIRE.md
            return answer["retracted"]
