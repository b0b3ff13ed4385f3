"""Forward chaining: ancestors are derived from parents, each for as long as what it follows from holds."""

from __future__ import annotations

from dataspace.actors import Turn, record
from dataspace.patterns import capture
from examples.actors.stage import play, tell

Parent = record("parent", "of", "who")
Ancestor = record("ancestor", "of", "who")


def main(turn: Turn) -> None:
    """Three generations; then one link is taken away."""
    turn.spawn(deduce)
    turn.spawn(listen)
    turn.spawn(family)


def deduce(turn: Turn) -> None:
    """A parent is an ancestor, and so are the parent's ancestors."""

    @turn.during(Parent(capture(), capture()))
    def link(turn: Turn, of: str, who: str) -> None:
        turn.assert_(Ancestor(of, who))
        turn.during(Ancestor(who, capture()))(lambda turn, elder: turn.assert_(Ancestor(of, elder)))


def listen(turn: Turn) -> None:
    """Tells who the child's ancestors are."""
    turn.on_asserted(Ancestor("child", capture()))(lambda turn, who: tell(turn, "ancestor:", who))
    turn.on_retracted(Ancestor("child", capture()))(lambda turn, who: tell(turn, "no more:", who))


def family(turn: Turn) -> None:
    """Who is whose parent, for a while."""
    turn.assert_(Parent("child", "mother"))
    turn.assert_(Parent("grandmother", "great-grandmother"))

    def elder(turn: Turn) -> None:
        turn.assert_(Parent("mother", "grandmother"))
        turn.stop_after(1)

    turn.react(elder)


if __name__ == "__main__":
    play(main)
