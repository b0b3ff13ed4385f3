"""Put and withdraw: one fact for each key of one owner, and the end of an owner's facts by pattern.

Facts of a session, or of its lease, are this client's alone, so it knows the claim that a new fact replaces.
A durable owner may have other clients, so there the daemon finds what the new fact replaces: that is a
publication by key.  Either way it is one turn: no observer sees both facts, or none.

Always: puts of one client take effect in the order in which they were called; a put that is sent again after
a lost connection happens once; a withdrawal without an answer is sent again, and then retracts what is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from dataspace.client.session.session import ClientSession
from dataspace.client.session.turns import Claim, Draft, check_durable
from dataspace.codec import pack
from dataspace.errors import UsageError
from dataspace.facts import fact_of, key_pattern, usual_key
from dataspace.loops.here import loop
from dataspace.loops.primitives import Event
from index.patterns.patterns import Pattern, matcher
from index.patterns.text import parse_pattern
from index.values.values import Map, Value, key, keys


class Puts:
    """The puts of one client; ``owner`` is the durable owner, or the lease, of its facts, if it has one."""

    def __init__(
        self,
        session: ClientSession,
        owner: str,
        draft: Callable[[], Draft],
        commit: Callable[[Draft], Awaitable[int]],
    ) -> None:
        self._session: Final = session
        self._owner: Final = owner
        self._draft: Final = draft
        self._commit: Final = commit
        self._claims: dict[Hashable, Claim] = {}
        self._era = session.forgotten
        self._client: Final = f"~put-{uuid.uuid4().hex}"
        self._sequence = 0
        self._busy: Event | None = None

    async def put(self, value: object, by: Value | str | None, owner: str = "") -> int:
        """Asserts a fact in place of the one with the same key; returns the epoch.

        The key is what the pattern ``by`` matches; by default all fields but the last.  The fact is of the
        client, or of a durable ``owner``.
        """
        if owner:
            check_durable(owner)
        elif not self._session.lease:
            owner = self._owner
        fact = fact_of(value)
        pattern = key_pattern(fact, by)
        while self._busy is not None:
            await self._busy.wait()
        self._busy = busy = loop().event()
        try:
            if owner:
                return await self._publish(fact, pattern, owner)
            return await self._replace(fact, pattern)
        finally:
            self._busy = None
            busy.set()

    async def _replace(self, fact: Value, pattern: Value) -> int:
        """Replaces what this client has put before."""
        if self._era != self._session.forgotten:  # the claims have ended, and are not asserted again
            self._era = self._session.forgotten
            self._claims.clear()
        place, draft = _place(fact), self._draft()
        before = self._before(fact, pattern, place)
        claim = draft.replace(self._claims[before[0]], fact) if before else draft.assert_(fact)
        for other in before[1:]:
            draft.retract(self._claims[other])
        epoch = await self._commit(draft)
        for each in before:
            del self._claims[each]
        self._claims[place] = claim
        return epoch

    def _before(self, fact: Value, pattern: Value, place: Hashable) -> list[Hashable]:
        """Returns where the claims are that have the key of a fact; O(1) for a key of all fields but the
        last, else O(claims)."""
        if key(pattern) == place:
            return [place] if place in self._claims else []
        match = matcher(pattern)
        wanted = match(fact)
        assert wanted is not None  # as was checked
        found = [(at, match(claim.value)) for at, claim in self._claims.items()]
        return [at for at, row in found if row is not None and keys(row) == keys(wanted)]

    async def _publish(self, fact: Value, pattern: Value, owner: str) -> int:
        """Replaces the fact that a durable owner has under the key."""
        self._sequence += 1
        arguments = {
            "keys": (pack((("assert", fact),)),),
            "owner": owner,
            "client": self._client,
            "sequence": self._sequence,
            "by": pattern,
        }
        epoch = await self._session.request("publish", Map(arguments))
        assert isinstance(epoch, int)  # by WIRE.md
        return epoch


def _place(fact: Value) -> Hashable:
    """Returns where the claim on a fact is kept: by its usual key, or by itself."""
    return key(usual_key(fact) or fact)


# -- withdrawals -----------------------------------------------------------------------------------


async def withdraw(session: ClientSession, pattern: Pattern | str, owner: str) -> int:
    """Retracts what the owner asserts and the pattern matches; returns how many claims the last request
    retracted, which is all of them unless the connection was lost."""
    if not owner:
        raise UsageError("withdraw retracts what a durable owner asserts: name it, withdraw(…, owner=NAME)")
    if session.lease is None:
        check_durable(owner)
    asked = Map({"owner": owner, "pattern": parse_pattern(pattern) if isinstance(pattern, str) else pattern})
    answer = await session.request("withdraw", asked)
    assert isinstance(answer, Map) and isinstance(answer["retracted"], int)  # by WIRE.md
    return answer["retracted"]
