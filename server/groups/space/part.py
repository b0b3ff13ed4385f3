"""The groups of a space as a part of it, with what runs while it is led."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from server.groups.space.groups import SpaceGroups
from server.groups.space.topics import read_all
from server.parts import PartKey, SpacePart, SpaceTask
from server.spaces.space import HostedSpace

ROOM_PART: Final = 4
"""Items may take one part in so many of the memory for what waits for observers."""


class GroupsPart(SpaceGroups, SpacePart):
    """The groups of one space, their tasks and their memory."""

    def __init__(self, hosted: HostedSpace) -> None:
        super().__init__(hosted)
        self.relimit()

    def after_group(self) -> None:
        self.deliver()

    def session_back(self, owner: str) -> None:
        self.awaited.expect_no_more(owner)

    def relimit(self) -> None:
        hosted = self.hosted
        self.items.limit = min(hosted.limits.group_bytes, hosted.budget.limit // ROOM_PART)

    def tasks(self) -> Iterable[SpaceTask]:
        return (SpaceTask("groups", self.run), SpaceTask("readers of groups", partial(read_all, self)))

    def used(self) -> int:
        return self.items.used + self.feeding.bytes


GROUPS: Final = PartKey[SpaceGroups]("groups")
