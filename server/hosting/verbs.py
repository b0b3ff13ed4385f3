"""Requests about code that the daemon runs: its actors, and the rules of a space."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from dataspace.errors import Refused
from dataspace.wire.arguments import number, text
from index.values.values import Map, Value
from server.hosting.actors import HostedActors
from server.sessions.peer import Peer
from server.spaces.rules import RESUME, ask_rules


def hosting_verbs(hosting: HostedActors) -> Mapping[str, Callable[[Peer, Map], Awaitable[Value]]]:
    """Returns the requests that hosted code answers, by the names that they have on the wire."""

    async def _actors(inspector: Peer, arguments: Map) -> Value:
        """Returns the actors that the daemon hosts; their turns show facts, so they need every right."""
        await trio.lowlevel.checkpoint()
        inspector.permit.check_inspect("the actors")
        turns = max(0, number(arguments, "turns", 0))
        if turns and not inspector.permit.open:
            raise Refused("not-allowed", "the turns of actors are shown to a token that may do everything")
        return hosting.status(most=max(0, number(arguments, "most", 0)), turns=turns)

    return {"actors": _actors, "rules": _rules}


async def _rules(inspector: Peer, arguments: Map) -> Value:
    """Answers a question about the rules: how they run, or why a fact is derived or not."""
    await trio.lowlevel.checkpoint()
    inspector.permit.check_inspect("the rules")
    space, about, ask = inspector.home.space, arguments.get("about"), text(arguments, "ask")
    if ask == RESUME:
        inspector.permit.check_rules()
        return inspector.home.resume_rule(text(arguments, "about"))
    return ask_rules(space, inspector.permit, ask, about, text(arguments, "form", "text"))
