"""Failures: what raises while the daemon works for a group stops that group, and nothing else.

The tasks of groups work for tenants, so each step for one group is fenced, as sessions are.  A group whose
step has raised is paused with the reason: in its definition, in the space ``system``, in the log and in the
audit log.  Its memory is made anew from its state, which the log has as well, so that ``resume`` goes on with
the same jobs.  A group that cannot even be made anew hands out nothing until the next start, or is deleted.

Always: no error of a group ends the daemon, keeps it from starting, or reaches a session of other groups;
after it the memory of the group agrees with the log.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from dataspace.errors import Closed, Refused
from relay.groups.members import JobDelivery
from relay.groups.state import GroupStates
from relay.store.errors import LogFailed
from server.groups.space.group import (
    StreamMember,
    WorkGroup,
    dead_letters,
    definitions_of,
    options_of,
    redefine,
)
from server.logs import AUDIT
from server.spaces.space import HostedSpace

logger = logging.getLogger("dataspace")
audit = logging.getLogger(AUDIT)

MOST_WHY: Final = 500
"""Characters of why a group is paused."""

P = ParamSpec("P")
S = TypeVar("S", bound="FencedGroups")


class FencedGroups(ABC):
    """The groups of a space, as far as failures concern them."""

    def __init__(self, hosted: HostedSpace) -> None:
        self.hosted = hosted
        self.by_name: dict[str, WorkGroup] = {}
        self.states = GroupStates()
        self.failed: dict[str, str] = {}
        """Groups that cannot be served until the next start, and why."""
        self.unstated: dict[WorkGroup, None] = {}
        """Groups that were stopped, whose definition does not say so yet."""

    @abstractmethod
    def wake(self) -> None:
        """Schedules ``state_failures``."""

    @abstractmethod
    def defect(self, error: Exception) -> None:
        """Notes an error in the work for groups that belongs to no group."""

    @abstractmethod
    def rest(self, group: WorkGroup) -> None:
        """Takes a group off the live feed."""

    @abstractmethod
    def displace(self, group: WorkGroup) -> None:
        """Offers a group no items any more."""

    @abstractmethod
    def note_gone(self, group: WorkGroup) -> None:
        """Notes in the log that items are done whose facts are gone."""

    @abstractmethod
    def revoke(self, deliveries: Iterable[JobDelivery]) -> None:
        """Tells members that deliveries are no longer theirs."""


class StepFence:
    """A block of work for one group, which stops the group where it raises; the end of the log passes.

    It costs half a microsecond where nothing is raised, so each row of an epoch has none (``feeding``).
    """

    __slots__ = ("_group", "_groups", "_step")

    def __init__(self, groups: FencedGroups, group: WorkGroup, step: str) -> None:
        """``step`` is what operators are told that the daemon did for the group."""
        self._groups, self._group, self._step = groups, group, step

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, LogFailed | Closed):
            return False
        stop(self._groups, self._group, self._step, error)
        return True


def fenced(
    step: Callable[Concatenate[S, WorkGroup, P], None],
) -> Callable[Concatenate[S, WorkGroup, P], None]:
    """Returns a step for one group in a ``StepFence``."""

    @wraps(step)
    def run(groups: S, group: WorkGroup, *args: P.args, **more: P.kwargs) -> None:
        with StepFence(groups, group, step.__name__):
            step(groups, group, *args, **more)

    return cast("Callable[Concatenate[S, WorkGroup, P], None]", run)


@contextmanager
def guarded(groups: FencedGroups, group: WorkGroup, step: str) -> Iterator[None]:
    """Stops a group where what a session asks of it raises, which also ends that session; refusals pass."""
    try:
        yield
    except (Refused, LogFailed, Closed):
        raise
    except Exception as error:
        stop(groups, group, step, error)
        raise


def stop(groups: FencedGroups, group: WorkGroup, step: str, error: Exception) -> None:
    """Pauses a group whose step has raised, and makes its memory anew; raises nothing.

    Its jobs are out to nobody; its members stay and get nothing.
    """
    if groups.by_name.get(group.name) is not group:
        logger.error("group %r was deleted while it failed (%s)", group.name, step, exc_info=error)
        return
    why = f"a defect in the daemon ({step}): {error!r}"[:MOST_WHY]
    report_pause(groups.hosted.name, group.name, why, error)
    try:
        pause(groups, group, why)
    except Exception as another:  # noqa: BLE001  # a fence: it is stopped all the same
        give_up(groups, group.name, why, another)


def pause(groups: FencedGroups, group: WorkGroup, why: str) -> None:
    """Pauses a group, whose memory may be wrong, for a reason that its definition states soon."""
    group.failure = why
    groups.rest(group)
    if group.core.gone:  # they are done in memory, and the log does not know it yet
        groups.note_gone(group)
    out = list(group.core.out.values())
    group.state.unread()
    _, fact = definitions_of(groups.hosted, group.name)[-1]
    group.begin_anew(group.core.next_token, replace(options_of(fact), paused=why))
    group.dead = dead_letters(groups.hosted, group.name)
    groups.unstated[group] = None
    groups.wake()
    groups.revoke(out)
    for member in group.core.members.values():  # a delivery that was about to end is not among those
        if not member.is_ending:
            cast("StreamMember", member).mark(("held", group.pattern, group.options.ack_within, ()))


def give_up(groups: FencedGroups, name: str, why: str, error: Exception) -> None:
    """Serves a group no more until the next start; raises nothing."""
    logger.error("group %r of space %s is not served: %s", name, groups.hosted.name, why, exc_info=error)
    groups.failed[name] = why
    group = groups.by_name.pop(name, None)
    if group is None:
        return
    group.failure = why
    groups.displace(group)
    with suppress(Exception):  # its items may count wrongly
        group.core.close()
    for member in group.core.members.values():
        with suppress(Exception):  # the stream of one member must not keep the others from being told
            cast("StreamMember", member).mark(("ended",))


def state_failures(groups: FencedGroups) -> None:
    """States in the definitions of groups that were stopped that they are paused; raises nothing."""
    while groups.unstated:
        group, _ = groups.unstated.popitem()
        try:
            if group.failure:
                redefine(groups.hosted, group, group.options)
        except (Refused, LogFailed, Closed) as error:
            logger.warning("group %r: its definition does not say that it is paused: %s", group.name, error)
        except Exception:  # a fence; the group is paused all the same
            logger.exception("group %r: its definition does not say that it is paused", group.name)


def stop_refused(groups: FencedGroups) -> None:
    """Pauses the groups with a note in the log that could not be taken in."""
    refused = groups.states.refused
    while refused:
        name, why = refused.popitem()
        group = groups.by_name.get(name)
        if group is not None:
            report_pause(groups.hosted.name, name, why)
            pause(groups, group, why[:MOST_WHY])


def report_pause(space: str, name: str, why: str, error: Exception | None = None) -> None:
    """Says in the log of the daemon, and in the audit log, that a group is paused, and why."""
    logger.error("group %r of space %s is paused: %s", name, space, why, exc_info=error)
    fields = {"act": "group-paused", "space": space, "group": name, "text": why}
    audit.info(
        "group-paused: %s (space %s; group %s)",
        *(why, space, name),
        extra={"event": "group-paused", "fields": fields, "about": f"{space}/{name}"},
    )
