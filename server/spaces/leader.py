"""What a space says that follows: the address of the daemon that takes its turns, and how it skips epochs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dataspace.errors import Refused
from dataspace.kernel.changes import Claims
from dataspace.kernel.space import Space
from index.values.values import Value, same


@dataclass(slots=True)
class Leader:
    """The addresses of the daemon that writes the log; empty where it is not known, or does not run."""

    url: str = ""
    web: str = ""
    """Where it serves HTTP, such as ``http://127.0.0.1:7378``."""

    def refusal(self, space: str) -> Refused:
        """Returns the answer to what only the leader does."""
        if not self.url:
            text = f"space {space!r} is followed here, and no daemon that takes its turns is known now"
            return Refused("no-leader", text)
        return Refused("elsewhere", f"space {space!r} is followed here: ask {self.url}", self.url)


def nobody() -> None:
    """Sends nobody away."""


def difference(space: Space, owners: Mapping[str, Mapping[int, Value]]) -> list[Claims]:
    """Returns how claims differ from the claims in a space; O(claims of both)."""
    found: list[Claims] = []
    for owner in {*space.owners(), *owners}:
        before, after = space.claims(owner), owners.get(owner, {})
        ended = [handle for handle in before if handle not in after]
        begun = [
            (handle, value)
            for handle, value in after.items()
            if handle not in before or not same(before[handle], value)
        ]
        if begun or ended:
            found.append(Claims(owner, begun, ended))
    return found


def no_space(name: str, names: Collection[str]) -> Refused:
    """Returns the refusal of a name that no space has; ``names`` are the existing ones."""
    return Refused("no-space", f"no space named {name!r:.80}, there is {', '.join(map(repr, names))}")
