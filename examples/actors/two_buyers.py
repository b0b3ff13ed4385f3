"""Two-buyer protocol: A asks the price of a book and proposes to share it; B agrees if it can."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Quote = record("quote", "title", "price")
Split = record("split", "title", "price", "contribution", "accepted")
Order = record("order", "title", "price", "id")

PRICES = {"Catch 22": 22, "The Wind in the Willows": 5, "Encyclopaedia": 900}


def main(turn: Turn) -> None:
    """The seller and both buyers."""
    turn.spawn(seller)
    turn.spawn(buyer_b, 100)
    turn.spawn(buyer_a, ("Catch 22", "Encyclopaedia", "The Wind in the Willows"))


def seller(turn: Turn) -> None:
    """Quotes what is asked for, and takes orders."""
    number = turn.field("number", 10_001)

    @turn.during("Observe(quote($title:str, _))")
    def asked(turn: Turn, title: str) -> None:
        turn.assert_(Quote(title, PRICES.get(title)))

    @turn.during("Observe(order($title:str, $price:int, _))")
    def ordered(turn: Turn, title: str, price: int) -> None:
        accepted = PRICES.get(title) == price
        turn.assert_(Order(title, price, number.value if accepted else None))
        number.value += accepted


def buyer_a(turn: Turn, titles: tuple[str, ...]) -> None:
    """Wants one book after another, and pays up to half of each."""
    if not titles:
        tell(turn, "A has done")
        return
    title, rest = titles[0], titles[1:]

    def offer(turn: Turn, price: int) -> None:
        def negotiate(turn: Turn) -> None:
            turn.stop_when(Split(title, price, price // 2, capture()), answered)

        turn.react(negotiate)

    def answered(turn: Turn, accepted: bool) -> None:
        tell(turn, f"A: {title} {'is bought' if accepted else 'is too dear for B'}")
        turn.react(buyer_a, rest)

    turn.react(lambda inner: inner.stop_when(f'quote("{title}", $price)', offer))


def buyer_b(turn: Turn, funds: int) -> None:
    """Agrees while the money lasts, and orders."""
    left = turn.field("left", funds)

    @turn.during("Observe(split($title:str, $price:int, $contribution:int, $))")
    def proposed(turn: Turn, title: str, price: int, contribution: int, *_: object) -> None:
        rest = price - contribution
        tell(turn, f"B is to pay {rest} of {left.value}")
        if rest > left.value:
            turn.assert_(Split(title, price, contribution, False))
            return
        left.value -= rest

        @turn.on_asserted(Order(title, price, capture()))
        def confirmed(turn: Turn, number: int) -> None:
            tell(turn, f"B: order {number}")
            turn.assert_(Split(title, price, contribution, True))


if __name__ == "__main__":
    play(main)
