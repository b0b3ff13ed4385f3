"""The names, values, patterns and batches that an attacker uses: its own, those of others, and rubbish.

Always: each fact, message and batch says which tenant made it (``tagged``).
"""

from __future__ import annotations

import random
from typing import Final

from dataspace.codec import pack
from dataspace.transport.tokens import Token
from index.patterns.patterns import capture
from index.values.values import Map, Record, Value
from tests.abuse import tenants as known
from tests.abuse.tenants import Tenant, tagged

BIG: Final = (0, 1, 2, 3, 63, 64, 1 << 16, 1 << 31, 1 << 48, 1 << 62, (1 << 63) - 1)
JUNK: Final[tuple[Value, ...]] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        float("nan"),
        -0.0,
        1 << 63,
        -(1 << 70),
        "",
        "a",
        "lease:",
        "\0",
        b"",
        b"\xc1",
    ),
    *(
        (),
        ((),),
        Map(),
        Map({"a": Map({"b": ()})}),
        Record("_"),
        Record("$", "x", None, Record("_")),
        Record("lit", 1),
    ),
    *("x" * 4097, ("a", 1), Map({1: 2}), Record(Record("r"), 1), "main", "~", "\u202e"),
)


class Palette:
    """What one connection of a tenant may choose from; ``numbers`` are those of others that it knows."""

    def __init__(self, tenant: Tenant, chance: random.Random) -> None:
        self.tenant = tenant
        self.chance = chance
        self.producers: list[int] = []

    def identity(self) -> str:
        """Returns an identity: one of its own, or that of another."""
        chance = self.chance
        own = [f"~{self.tenant.name}-{chance.randrange(4)}", *self.tenant.names("durable")]
        return chance.choice(own) if chance.random() < 0.7 else chance.choice(known.IDENTITIES)

    def owner(self) -> str:
        """Returns the owner of a turn: one of its own, or that of another."""
        chance = self.chance
        own = self.tenant.names("durable")
        if own and chance.random() < 0.5:
            return chance.choice(own)
        odd = ("", "rules", "durable:bank", "session:0.1", "actor:x", "lease:600000:bank interests")
        return chance.choice((self.lease_name(), chance.choice(known.OWNERS), chance.choice(odd)))

    def lease_name(self) -> str:
        """Returns the name of a lease."""
        if self.chance.random() < 0.5:
            return f"lease:{self.chance.choice((1500, 60_000))}:{self.tenant.name}{self.chance.randrange(3)}"
        return self.chance.choice(known.LEASES)

    def key(self) -> tuple[str, ...]:
        """Returns a key to stage under."""
        return (
            (self.tenant.name, str(self.chance.randrange(3)))
            if self.chance.random() < 0.5
            else self.chance.choice(known.KEYS)
        )

    def topic(self) -> str:
        """Returns the name of a topic."""
        own = self.tenant.names("topics")
        return (
            self.chance.choice(own)
            if own and self.chance.random() < 0.6
            else self.chance.choice(known.TOPICS)
        )

    def token(self) -> str:
        """Returns no token, or one that is damaged, made up, of another form, or without its caveat."""
        chance = self.chance
        others = [each.token for each in known.INNOCENTS.values()]
        whole = chance.choice(others)
        return chance.choice(
            ("", "ds1.", f"{whole[:-1]}!", whole[: len(whole) // 2], f"ds1.{whole}", "x" * 8000, _STRIPPED)
        )

    def foreign_number(self) -> int:
        """Returns a number that may be that of a session."""
        numbers = (*range(1, 12), *self.producers, *BIG)
        chosen: int = self.chance.choice(numbers)
        return chosen

    def value(self) -> Value:
        """Returns a value to assert or to send, mostly one of the tenant's own."""
        chance, number = self.chance, self.chance.randrange(40)
        if chance.random() < 0.6:
            return Record(self.tenant.label, f"by-{self.tenant.name}", number)
        if chance.random() < 0.1:
            return chance.choice(JUNK)
        label = chance.choice(known.LABELS)
        if label == "rule":
            text = f"{self.tenant.label}($x) <- of_bank($x, $y)."
            return Record("rule", f"by-{self.tenant.name}", text)
        if label == "Observe":
            return Record("Observe", self.pattern())
        return Record(*tagged(self.tenant.name, label, number))

    def pattern(self) -> Value:
        """Returns a pattern: of what the tenant may observe, of what it may not, or of nothing."""
        chance = self.chance
        label = chance.choice((self.tenant.label, known.SHARED, *known.LABELS))
        plain = Record(
            label, *(chance.choice((Record("_"), capture("x"), 1)) for _ in range(chance.randrange(4)))
        )
        return chance.choice(
            (
                plain,
                plain,
                plain,
                capture("x"),
                Record("_"),
                Record("_", "record"),
                Record("exact", plain),
                Record("lit", plain),
                Record("$", "y", "record", plain),
                Record("$", None, None, Record("_")),
                Record("Observe", capture("x")),
                Record("Observe", plain),
                (plain,),
                Map({"a": plain}),
                chance.choice(JUNK),
            )
        )

    def operation(self) -> Value:
        """Returns an operation to stage."""
        if self.seldom(0.02):
            return self.chance.choice(JUNK)
        return (self.chance.choice(("assert", "assert", "retract", "send")), self.value())

    def rows(self) -> bytes:
        """Returns packed operations in one of their three forms, sometimes damaged."""
        chance, count = self.chance, self.chance.randrange(4)
        label = self.tenant.label if chance.random() < 0.6 else chance.choice(known.LABELS)
        by, numbers = f"by-{self.tenant.name}", tuple(range(count))
        verb = chance.choice(("assert", "send", ("assert",) * count))
        body = pack(
            chance.choice(
                (
                    (verb, label, ((by,) * count, numbers), count),
                    (verb, tuple((label, by, n) for n in numbers), ()),
                    tuple(("assert", Record(label, by, n)) for n in numbers),
                )
            )
        )
        return body if not self.seldom(0.05) else body[: chance.randrange(len(body))]

    def seldom(self, share: float) -> bool:
        """Returns true in so many of all cases."""
        return self.chance.random() < share


_TWIN: Final = Token.read(known.ATTACKERS["cain"].token)
_STRIPPED: Final = Token(_TWIN.secret_name, (), _TWIN.seal).text()
"""A token from which the caveat was removed, so that its seal is wrong."""
