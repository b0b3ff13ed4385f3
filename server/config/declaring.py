"""A setting is one line: a field of a dataclass that states how it is read, its name and its option.

    lease: float = setting(3.0, SECONDS.between(0.2, 3600.0))

The table of all settings, and the making of a ``Config`` from their values, follow from these fields.  A
field whose default is another dataclass is a *group*: each field of it is a setting in a table of the file.
A field of a group that states nothing is read by its type: a number with a point is a time, a whole number is
a size where the name of the field has ``bytes``, else a count.

Always: what reads a setting returns what its field holds; mypy compares the two, but for what a group states
in place of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, NamedTuple, TypeVar

from server.config.kinds import BYTES, COUNT, SECONDS, flag

PREFIX: Final = "DATASPACE_SERVE_"

Read = Callable[[object], object]
"""Makes a setting from an entry of a file or from text; raises ``UsageError`` with the expected form."""

D = TypeVar("D")
T = TypeVar("T")

_STATED: Final = "setting"
"""The key of a field's metadata."""


class Declared(NamedTuple):
    """What a field states of its setting; without a ``name`` it is the name of the field in its table."""

    read: Read
    name: str = ""
    option: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name in the file, with the tables it is in; ``option`` is its option on the command
    line."""

    name: str
    read: Read
    default: object
    """The default; None as well for one that the machine decides, see ``usual``."""
    option: str | None = None
    made: Callable[[], object] | None = None
    needed: bool = False
    """True for an entry of a table of the file that has no default."""

    @property
    def variable(self) -> str:
        """The name of the setting in the environment."""
        return PREFIX + self.name.replace(".", "_").upper()

    @property
    def leaf(self) -> str:
        """The name within its table."""
        return self.name.rpartition(".")[2]

    def usual(self) -> object:
        """Returns the value that holds if none is stated."""
        return self.default if self.made is None else self.made()


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """The settings of the fields of a dataclass, which are in one ``table`` of the file.

    ``own`` has what fields cannot state themselves, since their class knows no configuration: by field, None
    for one that is no setting.  Without a ``table`` only fields that state something are settings.
    """

    kind: type
    table: str = ""
    own: Mapping[str, Declared | None] = field(default_factory=dict)
    make: Callable[..., object] | None = None
    """What makes it of values by field, where that is not the class."""

    def members(self) -> Iterator[tuple[str, Setting | SettingGroup]]:
        """Yields each setting, or group of settings, with its field."""
        for class_field in fields(self.kind):
            stated = self.own[class_field.name] if class_field.name in self.own else self._stated(class_field)
            if isinstance(stated, SettingGroup):
                yield class_field.name, stated
            elif stated is not None:
                name = stated.name or f"{self.table}.{class_field.name}".lstrip(".")
                factory = None if class_field.default_factory is MISSING else class_field.default_factory
                default = None if class_field.default is MISSING else class_field.default
                needed = factory is None and class_field.default is MISSING
                yield class_field.name, Setting(name, stated.read, default, stated.option, factory, needed)

    def _stated(self, class_field: Field[Any]) -> Declared | SettingGroup | None:
        if _STATED in class_field.metadata or not self.table:
            return class_field.metadata.get(_STATED)
        usual: Mapping[type, Read] = {
            bool: flag,
            float: SECONDS,
            int: BYTES if "bytes" in class_field.name else COUNT,
        }
        return Declared(usual[type(class_field.default)])

    def settings(self) -> Iterator[Setting]:
        """Yields the settings, those of groups within the group as well."""
        for _, each in self.members():
            yield from each.settings() if isinstance(each, SettingGroup) else (each,)

    def of(self, name: str) -> SettingGroup:
        """Returns the group in a field."""
        group = dict(self.members())[name]
        assert isinstance(group, SettingGroup)  # as the caller knows
        return group

    @property
    def leaf(self) -> str:
        """The name within its table."""
        return self.table.rpartition(".")[2]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of its members within its table."""
        return tuple([each.leaf for _, each in self.members()])

    def built(self, value: Mapping[str, object]) -> Any:
        """Returns an instance of the class, from the values of settings by their names."""
        return (self.make or self.kind)(
            **{
                field: each.built(value) if isinstance(each, SettingGroup) else value[each.name]
                for field, each in self.members()
            }
        )


def setting(default: D, read: Callable[[object], T], name: str = "", option: str | None = None) -> D | T:
    """Returns a field that is a setting."""
    return field(default=default, metadata={_STATED: Declared(read, name, option)})


def needed(read: Callable[[object], T]) -> T:
    """Returns a field that a table of the file must state."""
    return field(metadata={_STATED: Declared(read)})  # type: ignore[no-any-return]  # without a default it has no type


def computed(
    made: Callable[[], D], read: Callable[[object], T], name: str = "", option: str | None = None
) -> D | T:
    """Returns a field that is a setting, whose default the machine decides or which can be changed."""
    return field(default_factory=made, metadata={_STATED: Declared(read, name, option)})


def group(kind: type[T], table: str = "", **own: Declared | None) -> T:
    """Returns a field that is a group of settings; without a ``table`` its fields state their names."""
    return field(default_factory=kind, metadata={_STATED: SettingGroup(kind, table, own)})


def optional(kind: type[T], table: str, make: Callable[..., T | None], /, **own: Declared | None) -> T | None:
    """Returns a field that is a group of settings, or None where ``make`` finds that they are not stated."""
    return field(default=None, metadata={_STATED: SettingGroup(kind, table, own, make)})
