"""The halves of the classics that a daemon hosts while remote clients play the others."""

from __future__ import annotations

from dataspace.actors.engine.turns import Turn
from dataspace.actors.layers import layer
from examples.actors import (
    ancestors,
    bank_account,
    box_and_client,
    chat,
    firewall,
    flip_flop,
    memo_service,
    responsibility,
    two_buyers,
    work_queue,
)


def box(turn: Turn) -> None:
    """A box that goes at 3."""
    box_and_client.box(turn, 3)


def account(turn: Turn) -> None:
    """An account."""
    bank_account.account(turn)


def alice(turn: Turn) -> None:
    """Somebody to talk to."""
    chat.talk(turn, "Alice", 60)


def deduction(turn: Turn) -> None:
    """Who finds out about ancestors."""
    ancestors.deduce(turn)


def factorials(turn: Turn) -> None:
    """Who computes what is asked for."""
    memo_service.service(turn)


def bookshop(turn: Turn) -> None:
    """The seller, and the buyer who shares."""
    turn.spawn(two_buyers.seller)
    turn.spawn(two_buyers.buyer_b, 100)


def toggle(turn: Turn) -> None:
    """The state machine."""
    flip_flop.state(turn, "off")


def guard(turn: Turn) -> None:
    """One guard, for a second."""
    responsibility.guard(turn, ("hosted",))


def tasks(turn: Turn) -> None:
    """A queue of three tasks."""
    work_queue.queue(turn, 3)


def wall(turn: Turn) -> None:
    """What is behind the firewall."""
    layer(turn, _behind, allow=["public(_)", "line(_)"])


def _behind(turn: Turn) -> None:
    firewall.inside(turn)
