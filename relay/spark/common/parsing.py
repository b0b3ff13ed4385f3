"""Values of options: what the text of one option means, whatever the option is.

Apart from the options themselves, which say which there are and how they go together.

Always: text that makes no sense is a ``ValueError`` that says what is allowed; ``OptionBag`` turns it into a
``UsageError`` that names the option.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias, TypeVar

from dataspace.errors import UsageError
from dataspace.kernel.changes import micros_of
from dataspace.transport.addresses import parse_url
from dataspace.transport.candidates import READ

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time at which epochs are made: microseconds since 1970, and the text of the option."""

    micros: int
    said: str


Numbered: TypeAlias = Literal["snapshot", "latest", "earliest"] | int
"""Where a stream begins: a state and what follows, or the changes after a point."""

Start: TypeAlias = Numbered | tuple[int, ...] | Moment
"""The same, or a time of a topic, or a time of day."""

First: TypeAlias = Literal["earliest"] | int | tuple[int, ...] | Moment
"""Where a batch of changes begins: at an epoch, at a time of a topic, or at a time of day."""

State: TypeAlias = Literal["latest"] | int | Moment
"""The epoch of a state."""

Last: TypeAlias = State | tuple[int, ...]
"""The end of a range: an epoch, a time of a topic, or a time of day."""

Malformed: TypeAlias = Literal["fail", "drop", "null"]
"""What becomes of a fact with a value that its column cannot hold."""


_SPARKS_OWN: Final = frozenset(["checkpointlocation", "queryname", "outputmode", "failonunsupportedread"])
"""Options that Spark keeps beside ours in the same bag, lower-cased."""


_OF_A_TABLE: Final = "option."
"""What Spark puts before the names of the options of a table of its catalog."""

_NO_SCHEMA: Final = (
    "CREATE TABLE … USING dataspace hands none of its options to a Python source: use "
    "CREATE TEMPORARY VIEW … USING dataspace OPTIONS (…); or give the table its columns, and the options to "
    "each query of it: SELECT … FROM t WITH (url '…', pattern '…'), and INSERT INTO t WITH (url '…', "
    "template '…') …"
)


_NO_VIEW: Final = (
    "; in SQL a view only reads: write with INSERT INTO t WITH (url '…', template '…') … for a table t"
)


class OptionBag:
    """One bag of options as Spark hands it over, checked against the names that its user may say.

    ``known`` are the names of each verb (``read``, ``write`` …), and ``verbs`` the verbs in use.
    """

    def __init__(self, given: Mapping[str, str], known: Mapping[str, Sequence[str]], *verbs: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower() for verb in verbs for name in known[verb]}
        of_table = [
            name.lower().removeprefix(_OF_A_TABLE) for name in given if name.lower().startswith(_OF_A_TABLE)
        ]
        if of_table:
            wrong = [_unknown(name, known, verbs) for name in of_table if name not in names]
            raise UsageError("; ".join([*wrong, _NO_SCHEMA]))
        for name in given:
            if name.lower() not in names and name.lower() not in _SPARKS_OWN:
                raise UsageError(_unknown(name, known, verbs))

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def one_of(self, names: Sequence[str], meaning: str) -> str:
        """Returns which of some options is given, the first where there is none; ``UsageError`` for two."""
        given = [name for name in names if self.has(name)]
        if len(given) > 1:
            raise UsageError(f"options {given[0]} and {given[1]} both say {meaning}: give one of them")
        return given[0] if given else names[0]

    def text(self, name: str) -> str | None:
        """The option as it was given; an empty one counts as not given."""
        return self._given.get(name.lower()) or None

    def needed(self, name: str, example: str) -> str:
        text = self.text(name)
        if text is None:
            raise UsageError(f"option {name} is missing: give it with .option({name!r}, …), {example}")
        return text

    def value(self, name: str, meaning: Callable[[str], T], default: D) -> T | D:
        text = self.text(name)
        if text is None:
            return default
        try:
            return meaning(text.strip())
        except ValueError as error:
            raise UsageError(f"option {name} is {text!r}, allowed are {error}") from None


def _unknown(name: str, known: Mapping[str, Sequence[str]], verbs: Sequence[str]) -> str:
    """Returns the error for an unknown name, with the option that is like it.

    Spark lower-cases the names that it passes on, so an option of another verb is named as it is written.
    """
    verb_names = " and ".join(verbs)
    folded = {each.lower(): each for verb in verbs for each in known[verb]}
    listed = f"(known are {', '.join(sorted(each for each in folded.values() if each != 'path'))})"
    for other, names in known.items():
        for each in names:
            if each.lower() == name.lower():
                of_view = _NO_VIEW if verbs == ("write",) and other != "write" else ""
                return f"option {each} is one of dataspace {other}, unknown to {verb_names} {listed}{of_view}"
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    hint = f"; did you mean {folded[near[0]]}?" if near else ""
    return f"option {name} is unknown to dataspace {verb_names}{hint} {listed}"


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


def seconds(text: str) -> float:
    """A span of time, as in ``30``, ``30s``, ``250ms``, ``2m``, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", text)
    if found is None:
        raise ValueError("spans such as 30s, 250ms or 2m")
    return float(found[1]) * _UNITS[found[2] or "s"]


def count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,17}", text):
        raise ValueError("whole numbers from 1 on")
    return int(text)


def epoch(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise ValueError("whole numbers from 0 on")
    return int(text)


def names(text: str) -> tuple[str, ...]:
    names = tuple([name.strip() for name in text.split(",")])
    if not all(names):
        raise ValueError("names of columns with commas between them")
    return names


def form(text: str) -> Literal["fact", "message"]:
    match text.lower():
        case "fact" | "message" as word:
            return word
    raise ValueError("fact and message")


def owner(text: str) -> Literal["writer", "query"]:
    match text.lower():
        case "writer" | "query" as word:
            return word
    raise ValueError("writer and query")


def flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true and false")
    return text.lower() == "true"


def start(text: str) -> Start:
    match text.lower():
        case "snapshot" | "latest" | "earliest" as word:
            return word
        case _ if re.fullmatch(r"\d{1,18}", text):
            return int(text)
    raise ValueError("snapshot, latest, earliest and epoch numbers")


def topic_start(text: str) -> Start:
    match text.lower():
        case "latest" | "earliest" as word:
            return word
        case _ if re.fullmatch(r"\d{1,18}", text):
            return int(text)
    at = time(text)
    if at is None:
        raise ValueError("earliest, latest, numbers of epochs, and times such as [12] or [3, 4]")
    return at


def time(text: str) -> tuple[int, ...] | None:
    """The coordinates of a time that is written as a list."""
    if not re.fullmatch(r"\[\s*\d{1,18}(\s*,\s*\d{1,18})*\s*\]", text):
        return None
    return tuple(json.loads(text))


def size(text: str) -> int:
    """Bytes, as Spark writes them.

    >>> size("500000"), size("64m"), size("1 GB")
    (500000, 67108864, 1073741824)
    """
    found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)b?", text.lower())
    if found is None or not int(found[1]):
        raise ValueError("numbers of bytes from 1 on, also with a unit, as 64m")
    return int(found[1]) << 10 * " kmg".index(found[2] or " ")


def by_peer(names: tuple[str, ...], meaning: Callable[[str], T], text: str) -> tuple[T, ...]:
    """One epoch for all daemons or spaces, or a JSON object with one for each by its address or name."""
    if not text.startswith("{"):
        return (meaning(text),) * len(names)
    if "" in names:
        raise ValueError("one for all, where several spaces of several stores are read")
    try:
        meanings = {_peer_name(name): meaning(str(each)) for name, each in json.loads(text).items()}
    except (json.JSONDecodeError, UsageError) as error:
        raise ValueError(f'JSON such as {{"tcp://HOST:PORT": 12}} ({error})') from None
    if set(meanings) != set(names):
        raise ValueError(f"JSON with one for each of {', '.join(names)} and no others")
    return tuple([meanings[name] for name in names])


def _peer_name(text: str) -> str:
    return parse_url(text.split("|")[0]).url if ":" in text else text


def reading(text: str) -> str:
    if text.lower() in READ:
        return text.lower()
    raise ValueError(" and ".join(READ))


def malformed(text: str) -> Malformed:
    match text.lower():
        case "fail" | "drop" | "null" as word:
            return word
    raise ValueError("fail, drop and null")


def first(text: str) -> First:
    if text.lower() == "earliest":
        return "earliest"
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    raise ValueError("earliest and epoch numbers (for a state instead of changes there is asOfEpoch)")


def topic_first(text: str) -> First:
    if text.lower() == "earliest":
        return "earliest"
    at = int(text) if re.fullmatch(r"\d{1,18}", text) else time(text)
    if at is None:
        raise ValueError("earliest, numbers of epochs, and times such as [12] or [3, 4]")
    return at


def last(text: str) -> State:
    if text.lower() == "latest":
        return "latest"
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    raise ValueError("latest and epoch numbers")


def topic_last(text: str) -> Last:
    if text.lower() == "latest":
        return "latest"
    at = int(text) if re.fullmatch(r"\d{1,18}", text) else time(text)
    if at is None:
        raise ValueError("latest, numbers of epochs, and times such as [12] or [3, 4]")
    return at


_LEAST_MILLIS: Final = 100_000_000_000
"""Milliseconds since 1970 in the year 1973: a smaller number was meant as seconds."""


def moment(text: str) -> Moment:
    """A time of day in ISO form, UTC where it has no offset, or in milliseconds since 1970 as in Kafka.

    >>> moment("2026-11-22 09:00:00").micros == moment("1795338000000").micros
    True
    """
    allowed = "times such as 2026-11-22T09:00:00Z (UTC without an offset) and milliseconds since 1970"
    if re.fullmatch(r"\d{1,15}", text):
        if int(text) < _LEAST_MILLIS:
            raise ValueError(f"{allowed}; this one looks like seconds")
        return Moment(int(text) * 1000, text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(allowed) from None
    return Moment(micros_of(found), text)
