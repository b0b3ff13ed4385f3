"""Visits: connections of the fuzzer's tenants to one daemon, for tests of single attacks."""

from __future__ import annotations

from index.patterns.patterns import capture
from index.values.values import Record, Value
from tests.abuse.lines import HERE, Client
from tests.abuse.stage import Stage
from tests.abuse.tenants import ADMIN, ATTACKERS, INNOCENTS


class Visits:
    """The daemon, and connections of its tenants by name."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._count = 0

    def come(
        self, who: str, identity: str = "", *, grace: int = 0, resume: tuple[int, Value] | None = None
    ) -> Client:
        """Returns a new connection of a tenant, under an identity of its own unless one is given."""
        self._count += 1
        tenant = INNOCENTS.get(who) or ATTACKERS[who]
        name = identity or f"~{who}-{self._count}"
        features: dict[str, Value] = {"grace": grace} if grace else {}
        if resume is not None:
            features["resume"] = resume
        return self.stage.client(who, token=tenant.token, identity=name, source=HERE, **features)

    def facts(self, label: str) -> list[tuple[Value, ...]]:
        """Returns the first fields of the facts with a label, as the administrator sees them."""
        with self.come(ADMIN) as admin:
            stream = admin.open({"pattern": Record(label, capture("x")), "quiet": True})
            admin.request("sync")
            admin.settle()
            return [row for told in admin.told(stream) for row in told.added]
