"""Which release of the zones of time the rules of a space were carried out with.

What rules derive by calendars depends on it, so it is noted in the log.  A start or a take-over with another
release derives other facts where zones have changed since, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dataspace.rules.language.zones import VERSION
from relay.log.log import Log
from relay.space_registers import ZoneData, with_zones
from server.logs import AUDIT
from server.parts import Awaited, PartKey, SpacePart

if TYPE_CHECKING:
    from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")
audit = logging.getLogger(AUDIT)


class ZonesPart(SpacePart):
    """Notes the release in the log of one space, once a rule reads zones."""

    def __init__(self, hosted: HostedSpace) -> None:
        self.before = ""
        """The release that the log had when this daemon began to lead the space, if it was another one."""
        self._hosted = hosted
        self._noted: ZoneData | None = None

    @property
    def release(self) -> str:
        """The release with which rules are carried out; empty while no rule reads zones."""
        program = self._hosted.space.rules.program
        return VERSION if program is not None and program.texts.reads_zones else ""

    def lead(self, log: Log, *, was_clean: bool, awaited: Sequence[Awaited]) -> None:
        self._noted = log.registers.of(ZoneData)
        self.before, self.is_busy = "", True
        self.after_group()

    def after_group(self) -> None:
        """Notes the release, if a rule has come that reads zones."""
        if self._noted is None or not self.release:
            return
        if self._noted.release not in ("", VERSION):
            self.before = self._noted.release
            self._say()
        if self._noted.release != VERSION:
            self._hosted.queue_note(with_zones(VERSION))
        self.is_busy = False

    def _say(self) -> None:
        text = f"zones of {VERSION}, and of {self.before} before: rules may derive other facts"
        logger.warning("space %s: %s", self._hosted.name, text)
        fields = {"act": "zones-changed", "space": self._hosted.name, "text": text}
        audit.info(
            "zones-changed: %s (space %s)",
            text,
            self._hosted.name,
            extra={"event": "zones-changed", "fields": fields},
        )

    def clear(self) -> None:
        self._noted, self.is_busy = None, False


ZONES: Final = PartKey[ZonesPart]("zones")
