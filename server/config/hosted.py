"""What a daemon hosts: actors, flows and functions of rules, as tables of its configuration state them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataspace.actors.supervision import Restart
from dataspace.errors import UsageError
from dataspace.rules.language.hosted import COST, LONGEST
from dataspace.wire.features import MAIN
from index.values.freezing import freeze
from index.values.values import Value
from server.config.declaring import Declared, SettingGroup, group, needed, setting
from server.config.kinds import count, flag, lasting, seconds, text


def _values(value: object) -> tuple[Value, ...]:
    if not isinstance(value, list):
        raise UsageError(f"an array is needed, not {value!r:.80}")
    return tuple([freeze(each) for each in value])


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError(f"an array of names is needed, not {value!r:.80}")
    return tuple([text(each) for each in value])


@dataclass(frozen=True, slots=True)
class HostedActor:
    """An actor that the daemon runs.

    ``run`` is ``module:function``, called with a turn and the ``arguments``.  With ``isolate`` it runs in a
    process of its own, which is killed when it has not reported for ``hang`` seconds (default: the daemon's).
    With ``required`` it is a service, which runs while ``require(name)`` is a fact of its space and all
    services that it ``needs`` are ready; else it runs from the start.
    """

    run: str = needed(text)
    name: str = setting("", text)
    space: str = setting(MAIN, text)
    arguments: tuple[Value, ...] = setting((), _values)
    isolate: bool = setting(False, flag)
    hang: float | None = setting(None, lasting)
    required: bool = setting(False, flag)
    needs: tuple[str, ...] = setting((), _names)
    restart: Restart = group(
        Restart, "restart", intensity=Declared(count), period=Declared(lasting), pause=Declared(seconds)
    )

    @property
    def title(self) -> str:
        """The name of the actor for messages."""
        return self.name or self.run


@dataclass(frozen=True, slots=True)
class HostedFlow:
    """A flow that runs in the turns of a space: ``run``, a ``module:function``, makes it of ``arguments``."""

    run: str = needed(text)
    name: str = setting("", text)
    space: str = setting(MAIN, text)
    arguments: tuple[Value, ...] = setting((), _values)

    @property
    def title(self) -> str:
        """The name of the flow for messages."""
        return self.name or self.run


@dataclass(frozen=True, slots=True)
class HostedFunction:
    """A function that rules of all spaces may call: ``run`` is ``module:function``.

    ``takes`` and ``gives`` are classes of values.  A call counts for ``cost`` units of work, and suspends its
    rule if it takes longer than ``longest`` seconds.
    """

    run: str = needed(text)
    takes: tuple[str, ...] = needed(_names)
    gives: str = needed(text)
    name: str = setting("", text)
    cost: int = setting(COST, count)
    longest: float = setting(LONGEST, lasting)

    @property
    def title(self) -> str:
        """The name in rules: by default the last part of the module, a point, and the function."""
        module, _, function = self.run.partition(":")
        return self.name or f"{module.rpartition('.')[2]}.{function}"


ACTORS: Final = SettingGroup(HostedActor, "actors")
FLOWS: Final = SettingGroup(HostedFlow, "flows")
FUNCTIONS: Final = SettingGroup(HostedFunction, "functions")
