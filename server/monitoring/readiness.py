"""Readiness: whether new clients should be sent to the daemon.

Always: a daemon that has begun to end is not ready again.
"""

from __future__ import annotations

from typing import Final

STARTING: Final = "the daemon is starting"
STOPPING: Final = "the daemon is stopping"


class Readiness:
    """Why no clients should be sent to the daemon now; nothing while they should.

    >>> readiness = Readiness()
    >>> readiness.begin(); readiness.reason
    ''
    >>> readiness.end("draining"); readiness.begin(); readiness.reason
    'draining'
    """

    def __init__(self) -> None:
        self.reason = STARTING
        self._over = False

    def begin(self) -> None:
        """Notes that clients are admitted; does nothing after ``end``."""
        if not self._over:
            self.reason = ""

    def end(self, reason: str = STOPPING) -> None:
        """Notes that no more clients should come, for good; the first reason stays."""
        if not self._over:
            self._over, self.reason = True, reason
