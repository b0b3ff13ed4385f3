"""The refusals of a space: by another name, or by the address of the daemon that takes its turns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dataspace.errors import Refused


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


def no_space(name: str, names: Collection[str]) -> Refused:
    """Returns the refusal of a name that no space has; ``names`` are the existing ones."""
    return Refused("no-space", f"no space named {name!r:.80}, there is {', '.join(map(repr, names))}")
