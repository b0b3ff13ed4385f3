"""Tenants: the tokens of one daemon, what each bearer may do, and the names that all of them know.

Innocent tenants own something, attackers are those who would like to.  Names here can be guessed: attackers
use them in all places.  What is secret are marks (``oracle``), which attackers never send.

Always: a fact or message with the label of a tenant can only come from that tenant, and ``ADMIN``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dataspace.transport.tokens import narrow
from index.values.values import Map, Value

ADMIN: Final = "admin"
SHARED: Final = "public"
"""The label of facts that all attackers may observe, and none may assert."""
VAULT: Final = "vault"
"""The label that the administrator's announced interest is in, which no attacker may observe."""

Scope = bool | str | tuple[str, ...] | Mapping[str, "Scope"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One bearer, the table of its token in the configuration, and the token that it shows in its hello."""

    name: str
    rights: Mapping[str, Scope]
    secret: str
    token: str
    space: str = "main"

    @property
    def label(self) -> str:
        """The label of the facts and messages that this tenant may assert and send."""
        return f"of_{self.name}"

    def names(self, right: str) -> tuple[str, ...]:
        """Returns the names that a right lists."""
        scope = self.rights.get(right, ())
        if isinstance(scope, Mapping):
            return tuple({name: None for each in scope.values() if isinstance(each, tuple) for name in each})
        return scope if isinstance(scope, tuple) else ()


def _tenant(name: str, rights: Mapping[str, Scope] | None = None) -> Tenant:
    """Returns a tenant that may assert, send and observe what is its own, and what is stated beyond that."""
    own = (f"of_{name}(_)",)
    secret = f"secret-of-{name}-0123456789"
    stated = {"assert": own, "send": own, "observe": (f"{SHARED}(_)", *own), **(rights or {})}
    return Tenant(name, stated, secret, secret)


def _twin(name: str) -> Tenant:
    """Returns one of those whose tokens were narrowed from one secret."""
    own = (f"of_{name}(_)",)
    rights: dict[str, Scope] = {"assert": own, "send": own, "observe": (f"{SHARED}(_)", *own)}
    token = narrow("secret-of-the-twins-0123456789", Map(rights))
    return Tenant(name, rights, "secret-of-the-twins-0123456789", token)


INNOCENTS: Final = {
    each.name: each
    for each in (
        Tenant(ADMIN, {}, "secret-of-admin-0123456789", "secret-of-admin-0123456789"),
        _tenant("robot", {"durable": ("robot-8", "robot-9")}),
        _tenant("bank", {"durable": ("bank", "bank-batches"), "readers": ("bank-reader",)}),
        _tenant("press", {"topics": ("press", "ledger")}),
        _tenant("nomad"),
        _twin("abel"),
    )
}

_ANNEX: Final[Mapping[str, Scope]] = {
    "spaces": ("annex",),
    "assert": True,
    "send": True,
    "observe": True,
    "durable": True,
    "readers": True,
    "rules": True,
}

ATTACKERS: Final = {
    each.name: each
    for each in (
        _tenant("viewer", {"assert": False, "send": False}),
        _tenant("writer", {"observe": False}),
        _tenant("publisher", {"durable": ("pub",)}),
        _tenant("author", {"topics": {"publish": ("gazette", "digest"), "end": ("gazette",)}}),
        _tenant("listener", {"topics": {"subscribe": ("press", "ledger")}}),
        _tenant("sensor", {"durable": ("pub",), "stamp": {"by": "sensor"}}),
        _tenant("gagged", {"deny": {"observe": ("of_gagged(0)",), "assert": ("of_gagged(0)",)}}),
        _tenant("reader", {"readers": ("mine",)}),
        _tenant("inspector", {"inspect": True}),
        Tenant("neighbour", _ANNEX, "secret-of-neighbour-01234", "secret-of-neighbour-01234", "annex"),
        _twin("cain"),
        Tenant("stranger", {"observe": False}, "", ""),
    )
}

# Names that an attacker may guess, or has seen somewhere: what belongs to innocents, to attackers, to nobody.
OWNERS: Final = ("robot-8", "robot-9", "bank", "pub", "laws", "nobody")
IDENTITIES: Final = (
    *(
        "robot-8",
        "owner:robot-9",
        "bank-batches",
        "owner:bank",
        "~nomad",
        "~abel",
        "~press",
        "pub",
        "owner:pub",
    ),
    *("~admin", "owner:laws", "~", "owner:"),
)
LEASES: Final = ("lease:600000:bank", "lease:600000:author", "lease:2000:author", "lease:600000:nobody")
KEYS: Final = (
    ("bank", "q", "1"),
    ("bank", "q", "2"),
    ("bank", "q"),
    ("bank",),
    ("pub", "1"),
    ("pub",),
    ("b",),
)
READERS: Final = ("bank-reader", "mine", "nobody")
TOPICS: Final = ("press", "ledger", "gazette", "digest", "nothing")
PRODUCERS: Final = ("press-desk", "author-desk", "")
SPACES: Final = ("main", "annex", "system", "nowhere")
LABELS: Final = (
    *(each.label for each in (*INNOCENTS.values(), *ATTACKERS.values())),
    *(SHARED, VAULT, "derived", "rule", "rule-error", "Observe", "require", "_", "$", "lit", "exact"),
)


def configuration(tenants: Iterable[Tenant], more: str = "") -> str:
    """Returns the text of a configuration that admits these tenants, each secret once."""
    tables, known = [more, "[spaces.annex]"], set[str]()
    for each in tenants:
        if not each.secret or each.secret in known:
            continue
        known.add(each.secret)
        tables.append(f'[[tokens]]\nname = "{each.name}"\nsecret = "{each.secret}"')
        if each.token == each.secret:  # else the rights are in its caveat
            tables += [f"{name} = {_toml(scope)}" for name, scope in each.rights.items()]
    return "\n".join(tables) + "\n"


def _toml(scope: Scope) -> str:
    if isinstance(scope, str):
        return repr(scope)
    if isinstance(scope, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in scope.items()) + " }"
    if isinstance(scope, bool):
        return str(scope).lower()
    return f"[{', '.join(repr(each) for each in scope)}]"


def tagged(tenant: str, label: Value, *fields: Value) -> tuple[Value, ...]:
    """Returns the label and fields of a record that says who made it."""
    return (label, f"by-{tenant}", *fields)
