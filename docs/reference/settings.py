"""The page of settings: what each is for, when to change it, its default, its unit, its variable."""

from __future__ import annotations

import tomllib
from itertools import groupby
from pathlib import Path

from docs.reference.tables import code, table
from server.config import kinds
from server.config.bounds import MOST, MOST_BYTES, MOST_SECONDS, SettingBounds, Within
from server.config.declaring import Read, Setting
from server.config.kinds import BYTES, COUNT, SECONDS
from server.config.settings import SETTINGS

HEAD = """\
# Settings

What each setting of `dataspace serve` is for, and when to change it; the defaults fit one daemon on a
machine of its own.
[Configuration and rights](../operations/serve.md) has the tables `[[tokens]]`, `[[rules]]`, `[[actors]]`,
`[[flows]]`, `[[functions]]` and `[spaces.NAME]`.

A setting stands in the configuration file under its name, in the environment under its variable, and some
have an option. `dataspace serve --check` prints the settings that hold, with their sources. Times are
seconds, or text such as `"500ms"`, `"10s"`, `"2m"`, `"7d"`.
Bytes are a number, or text such as `"512KiB"`, `"10GiB"`.
A number outside of its bounds is refused, by `--check` too. Where the page shows no bounds, a number begins
at 0; no time is above 10 000 000 000 seconds, no size above 1 PiB, no count above 1 000 000 000 000.
A limit of 0 permits none of its kind. A quota above the limit of its kind has no effect.
"""

HEADS = ("setting", "default", "unit", "purpose", "change it if", "option, variable")

EXPLAINED: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("settings.toml").read_text(encoding="utf-8")
)
"""The purpose of each setting, and when to change it."""

UNITS: dict[Read, str] = {
    kinds.addresses: "addresses",
    kinds.advertised: "URL",
    kinds.advertised_web: "URL",
    kinds.admin_address: "address",
    kinds.archive_place: "path or URL",
    kinds.collector: "URL",
    kinds.count: "count",
    kinds.followed: "path",
    kinds.flag: "true or false",
    kinds.lasting: "seconds",
    kinds.member_name: "name",
    kinds.mode: "octal text",
    kinds.names: "names",
    kinds.number_of_bytes: "bytes",
    kinds.origins: "origins",
    kinds.path: "path",
    kinds.place: "path or address",
    kinds.seconds: "seconds",
    kinds.share: "0 to 1",
}
"""The unit of a setting, by the function that reads it."""

WORDS = "one word"
"""The unit of settings that are one of some words."""


def page() -> str:
    """Returns the page."""
    parts = [HEAD]
    for group, settings in groupby(SETTINGS, lambda each: each.name.rpartition(".")[0]):
        rows = [_row(each) for each in settings]
        parts.append(f"## {'[' + group + ']' if group else 'At the top of the file'}\n\n{table(HEADS, rows)}")
    return "\n\n".join(parts) + "\n"


def _row(setting: Setting) -> tuple[str, ...]:
    option = code("--" + setting.option.replace("_", "-")) + "<br>" if setting.option else ""
    words = EXPLAINED[setting.name]
    return (
        code(setting.name),
        _default(setting),
        _unit(setting.read),
        words["purpose"],
        words["change"],
        option + code(setting.variable),
    )


def _unit(how: Read) -> str:
    """Returns the unit of a setting, with its bounds if they are its own."""
    if not isinstance(how, Within):
        return UNITS.get(how, WORDS)
    unit = UNITS[how.read]
    return unit if how in (SECONDS, BYTES, COUNT) else f"{unit}, {_bounds(how.bounds)}"


def _bounds(bounds: SettingBounds) -> str:
    """Returns bounds without a highest value that all settings share."""
    if bounds.most in (MOST_SECONDS, MOST_BYTES, MOST):
        return f"{'0, or ' if bounds.zero else ''}from {bounds.words.removeprefix('0, or ').split(' ')[0]}"
    return bounds.words


def _default(setting: Setting) -> str:
    value = setting.default
    if setting.name == "socket_mode":
        return code(f"{value:04o}")
    if value is None or value in ((), ""):
        return "–"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return code(f"{value >> 20} MiB" if value % (1 << 30) else f"{value >> 30} GiB")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float):
        return code(f"{value:,}".replace(",", " "))
    return code(", ".join(value) if isinstance(value, tuple) else str(value))
