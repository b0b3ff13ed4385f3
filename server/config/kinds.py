"""The kinds of settings: how each is read, from an entry of a file or from text.

Always: a value that cannot be understood is refused with what was found and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dataspace.errors import UsageError
from dataspace.transport.addresses import parse_listen, parse_url
from relay.store.address import StoreAddress, is_store_address
from server.config.bounds import MOST, MOST_BYTES, MOST_SECONDS, SettingBounds, Within
from server.config.units import duration, size

MEMBER_NAME: Final = 100
"""Characters of the name of a daemon among the daemons of a store."""

END: Final = 1 << 63
"""Numbers are below this."""

_ORIGIN: Final = re.compile(r"\*|https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_MODE: Final = re.compile(r"0?[0-7]{1,3}")
_NAME: Final = re.compile(r"[a-z0-9._-]+")
_CLUSTER: Final = re.compile(r"(.+)=(\d{1,3}(?::\d{1,3})*)")


def flag(value: object) -> bool:
    """Returns true or false."""
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise UsageError(f"true or false is needed, not {value!r:.80}")


def text(value: object) -> str:
    """Returns text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise UsageError(f"text is needed, not {value!r:.80}")


def count(value: object) -> int:
    """A number from 0."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < END:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= END:
        raise UsageError("a number below 2^63 is needed")
    raise UsageError(f"a number from 0 is needed, not {value!r:.80}")


def origins(value: object) -> tuple[str, ...]:
    """Returns one or several origins, separated by commas in text.

    >>> origins("https://app.example, http://localhost:5173")
    ('https://app.example', 'http://localhost:5173')
    """
    return _several(value, _ORIGIN, "an origin such as 'https://app.example', or '*' for all,")


def names(value: object) -> tuple[str, ...]:
    """Returns one or several names of machines, separated by commas in text.

    >>> names("a.example, b.example")
    ('a.example', 'b.example')
    """
    return _several(value, _NAME, "a name without a port, such as 'metrics.internal',")


def _several(value: object, form: re.Pattern[str], what: str) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise UsageError(f"{what} or an array of them is needed, not {value!r:.80}")
    found = []
    for item in given:
        if item != "":
            word = item.strip().lower() if isinstance(item, str) else ""
            if not form.fullmatch(word):
                raise UsageError(f"{what} is needed, not {item!r:.80}")
            found.append(word)
    return tuple(found)


def clusters(value: object) -> dict[str, tuple[int, ...]]:
    """Returns labels with positions of their fields, separated by commas in text.

    >>> clusters("flight=1, gate=0:2")
    {'flight': (1,), 'gate': (0, 2)}
    """
    given = value.split(",") if isinstance(value, str) else value
    found: dict[str, tuple[int, ...]] = {}
    for item in given if isinstance(given, list | tuple) else [given]:
        matched = _CLUSTER.fullmatch(item.strip()) if isinstance(item, str) else None
        if matched is None:
            raise UsageError(
                f"a label with positions of its fields, such as 'flight=1:0', is needed, not {item!r:.80}"
            )
        found[matched[1]] = tuple(map(int, matched[2].split(":")))
    return found


def seconds(value: object) -> float:
    """Returns a time in seconds, from a number or text such as 10s."""
    if isinstance(value, str):
        value = duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_SECONDS:
        return float(value)
    raise UsageError(f"a time such as '10s' or 0.5 is needed, not {value!r:.80}")


def lasting(value: object) -> float:
    """Returns a time above zero, in seconds."""
    if (found := seconds(value)) > 0:
        return found
    raise UsageError(f"a time above 0 is needed, not {value!r:.80}")


def number_of_bytes(value: object) -> int:
    """A size, as text such as 10GiB, or in bytes."""
    return count(size(value) if isinstance(value, str) else value)


def path(value: object) -> Path:
    """The path of a file or a directory."""
    if isinstance(value, str) and "\0" in value:
        raise UsageError(f"a path without a null character is needed, not {value!r:.80}")
    return value if isinstance(value, Path) else Path(text(value)).expanduser()


def followed(value: object) -> Path:
    """The directory of the daemon that is followed."""
    if isinstance(value, str) and value.startswith(("postgresql:", "postgres:")):
        raise UsageError(
            "the directory of a daemon on this machine is needed; daemons of a store follow its leader by"
            " themselves: dataspace serve --data postgresql://HOST/DB?schema=NAME"
        )
    return path(value)


def place(value: object) -> Path | StoreAddress:
    """Where data is kept: a directory, or the address of a store in PostgreSQL."""
    if isinstance(value, StoreAddress):
        return value
    if isinstance(value, str) and (scheme := value.partition("://")[0]) != value:
        if is_store_address(value):
            return StoreAddress.parse(value)
        raise UsageError(f"data is kept in a directory or in postgresql://…, not in {scheme}://…")
    return path(value)


def archive_place(value: object) -> Path | str:
    """Where history is archived: a directory, or a URL that fsspec knows."""
    if isinstance(value, str) and "://" in value and not value.startswith("file://"):
        if "@" in value.partition("://")[2].partition("/")[0]:
            raise UsageError(
                "a URL without a password is needed; credentials come from where the store's tools have them"
            )
        return text(value)
    return path(value.removeprefix("file://") if isinstance(value, str) else value)


def member_name(value: object) -> str:
    """The name of a daemon among the daemons of a store."""
    name = text(value)
    if 0 < len(name) <= MEMBER_NAME and name.isprintable():
        return name
    raise UsageError(f"a name of 1 to {MEMBER_NAME} printable characters is needed, not {value!r:.80}")


def mode(value: object) -> int:
    """Returns permissions, from text such as 0660."""
    written = text(value)
    if _MODE.fullmatch(written):
        return int(written, 8)
    raise UsageError(f"permissions such as '0660' are needed, not {value!r:.80}")


def admin_address(value: object) -> str:
    """Returns the address of the admin listener, from HOST:PORT."""
    written = text(value)
    try:
        return parse_listen(f"tcp:{written.removeprefix('tcp:')}").listen
    except UsageError:
        raise UsageError(f"HOST:PORT is needed, such as 127.0.0.1:7379, not {written!r:.80}") from None


def advertised(value: object) -> str:
    """Returns the URL by which clients reach a daemon."""
    try:
        return parse_url(text(value)).url
    except UsageError as error:
        raise UsageError(f"{error}, not {value!r:.80}") from None


def advertised_web(value: object) -> str:
    """Returns the URL by which pages reach a daemon."""
    said = text(value).rstrip("/")
    if not _ORIGIN.fullmatch(said) or said == "*":
        raise UsageError(f"a URL such as 'https://a.example:7378' is needed, not {value!r:.80}")
    return said


def collector(value: object) -> str:
    """Returns the URL to which spans are sent, of OTLP over HTTP."""
    written = text(value)
    try:
        parts = urlsplit(written)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or "@" in parts.netloc or parts.query or parts.fragment or set(written) & set(" \t\r\n"):
        raise UsageError(
            f"the URL of a collector is needed, such as http://127.0.0.1:4318, not {written!r:.80}"
        )
    return written if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1/traces"


def share(value: object) -> float:
    """Returns a part of all, from 0 to 1."""
    try:
        found = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # what is none raises
    except (TypeError, ValueError):
        found = -1.0
    if 0 <= found <= 1:
        return found
    raise UsageError(f"a number from 0 to 1 is needed, such as 0.01, not {value!r:.80}")


def one_of(*known: str) -> Callable[[object], str]:
    """Returns what reads one of some words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value.lower() in known:
            return value.lower()
        raise UsageError(f"{', '.join(known[:-1])} or {known[-1]} is needed, not {value!r:.80}")

    return read


def addresses(value: object) -> tuple[str, ...]:
    """Returns addresses to listen on: one or several, separated by commas in text."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not given:
        raise UsageError(f"an address or an array of them is needed, not {value!r:.80}")
    return tuple([parse_listen(text(each).strip()).listen for each in given])


SECONDS: Final = Within(seconds, SettingBounds(0.0, MOST_SECONDS), "seconds")
BYTES: Final = Within(number_of_bytes, SettingBounds(0, MOST_BYTES), "bytes")
COUNT: Final = Within(count, SettingBounds(0, MOST))

WAIT: Final = SECONDS.between(0.01)
"""A time for another machine to do something: less is over before a packet arrives."""

SOME: Final = COUNT.between(1)
"""A count without which no client is served at all."""
