"""The leader: the daemon that takes the turns of a space which this daemon follows."""

from __future__ import annotations

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
