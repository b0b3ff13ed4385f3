"""Options: what may be said in ``.option(name, value)``, and what it means?

Spark hands every source and sink a bag of strings, to which it adds some of its own.  They become a
frozen record here, on the driver, so that nothing further in has to guess; apart from the source and
the sink because both share the rules, and because the rules can then be tested without Spark.

Always: names are camelCase and told apart without regard to case; a name that nobody knows fails and
is answered with the nearest one that somebody does; a value that makes no sense fails and is answered
with those that do.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar

from dataspace.addresses import default_url, parse_url
from dataspace.credentials import Tls, default_token, read_token
from dataspace.errors import UsageError
from relay.spark.peers import MAIN, Peer

T = TypeVar("T")
D = TypeVar("D")

Numbered: TypeAlias = Literal["snapshot", "latest", "earliest"] | int
"""Where a stream begins: a state and what follows, or the changes after a point."""

Start: TypeAlias = Numbered | tuple[int, ...]
"""The same, or a time of a topic."""


Malformed: TypeAlias = Literal["fail", "drop", "null"]
"""What becomes of a fact with a value that its column cannot hold."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a streaming query reads: whom, what, from where, how much at a time.

    ``starts`` are as many as ``peers``.  ``max_changes`` counts those of the space, whatever the pattern.
    """

    peers: tuple[Peer, ...]
    topic: str | None
    pattern: str
    starts: tuple[Start, ...]
    max_epochs: int | None
    max_changes: int | None
    partitions: int
    reader: str | None
    include_value: bool
    malformed: Malformed
    fail_on_loss: bool
    connect_timeout: float
    poll_timeout: float
    batch_rows: int


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a batch reads: the changes of ``first`` to ``last``, both included, or the state at ``as_of``."""

    peers: tuple[Peer, ...]
    topic: str | None
    pattern: str
    partitions: int
    include_value: bool
    malformed: Malformed
    first: Literal["earliest"] | int | tuple[int, ...]
    last: Literal["latest"] | int
    as_of: Literal["latest"] | int | None
    fail_on_loss: bool
    connect_timeout: float
    batch_rows: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How rows become facts, and whose they are.

    Exactly one of ``template`` and ``label`` is given.  ``application`` and ``version`` make a batch
    write repeatable: the same pair is published once.  ``lease`` is the seconds for which facts outlast the
    last batch that their query wrote, None where they are durable.
    """

    peer: Peer
    template: str | None
    label: str | None
    writer: str | None
    connect_timeout: float
    application: str | None
    version: int | None
    keys: tuple[str, ...] = ()
    messages: bool = False
    dead_letter: str | None = None
    lease: float | None = None


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of ``readStream``; raises ``UsageError`` for a name or a value that nobody knows.

    >>> stream_options({"pattern": "present($who:str)", "startingEpoch": "12"}).starts
    (12,)
    """
    read = _Reading(given, _STREAM_NAMES, "readStream")
    urls, topic = _urls(read), _topic(read)
    starts: tuple[Start, ...] = tuple(["snapshot" if topic is None else "earliest" for _ in urls])
    return StreamOptions(
        peers=_peers(read, urls),
        topic=topic,
        pattern=_pattern(read),
        starts=read.value(
            "startingEpoch", partial(_starts, urls, _start if topic is None else _topic_start), starts
        ),
        max_epochs=read.value("maxEpochsPerTrigger", _count, None),
        max_changes=read.value("maxChangesPerTrigger", _count, None),
        partitions=read.value("minPartitions", _count, 1),
        reader=read.text("readerName"),
        include_value=read.value("includeValue", _flag, False),
        malformed=read.value("malformed", _malformed, "fail"),
        fail_on_loss=read.value("failOnDataLoss", _flag, True),
        connect_timeout=read.value("connectTimeout", seconds, 30.0),
        poll_timeout=read.value("pollTimeout", seconds, 0.25),
        batch_rows=read.value("arrowBatchRows", _count, 10_000),
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of ``spark.read``; raises ``UsageError`` as ``stream_options`` does."""
    read = _Reading(given, _READ_NAMES, "read")
    as_of, topic = read.value("asOfEpoch", _last, None), _topic(read)
    if as_of is not None and (read.has("startingEpoch") or read.has("endingEpoch")):
        raise UsageError(
            "asOfEpoch asks for a state, startingEpoch and endingEpoch for changes: give one kind"
        )
    return ReadOptions(
        peers=_peers(read, _urls(read)),
        topic=topic,
        pattern=_pattern(read),
        partitions=read.value("minPartitions", _count, 1),
        include_value=read.value("includeValue", _flag, False),
        malformed=read.value("malformed", _malformed, "fail"),
        first=read.value("startingEpoch", _first if topic is None else _topic_first, "earliest"),
        last=read.value("endingEpoch", _last, "latest"),
        as_of=as_of,
        fail_on_loss=read.value("failOnDataLoss", _flag, True),
        connect_timeout=read.value("connectTimeout", seconds, 30.0),
        batch_rows=read.value("arrowBatchRows", _count, 10_000),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of ``writeStream`` and ``write``; raises ``UsageError`` as ``stream_options`` does."""
    read = _Reading(given, _SINK_NAMES, "write")
    template, label = read.text("template"), read.text("label")
    if (template is None) == (label is None):
        raise UsageError("a sink needs either a template such as 'airborne($origin, $n)' or a label")
    application, version = read.text("txnAppId"), read.value("txnVersion", _epoch, None)
    if (application is None) != (version is None):
        raise UsageError(
            "txnAppId and txnVersion go together: a name, and a number that rises with every write"
        )
    return SinkOptions(
        peer=_peers(read, [_url(read)])[0],
        template=template,
        label=label,
        writer=read.text("writer"),
        connect_timeout=read.value("connectTimeout", seconds, 30.0),
        application=application,
        version=version,
        keys=read.value("keyColumns", _names, ()),
        messages=read.value("as", _form, "fact") == "message",
        dead_letter=read.text("deadLetter"),
        lease=_lease(read),
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the columns of a source."""

    pattern: str
    include_value: bool
    several: bool
    topic: bool


def source_shape(given: Mapping[str, str]) -> Shape:
    """What decides the columns, when it is not known yet whether a stream or a batch will read."""
    names = tuple(dict.fromkeys((*_STREAM_NAMES, *_READ_NAMES)))
    read = _Reading(given, names, "read and readStream")
    topic = _topic(read) is not None
    return Shape(_pattern(read), read.value("includeValue", _flag, False), len(_urls(read)) > 1, topic)


_SHARED: Final = (
    "url",
    "path",
    "connectTimeout",
    "space",
    "token",
    "tokenFile",
    "tlsCa",
    "tlsCertificate",
    "tlsKey",
    "tlsServerName",
)
_SOURCE: Final = (
    *_SHARED,
    "pattern",
    "topic",
    "startingEpoch",
    "failOnDataLoss",
    "arrowBatchRows",
    "minPartitions",
    "includeValue",
    "malformed",
)
_STREAM_NAMES: Final = (*_SOURCE, "maxEpochsPerTrigger", "maxChangesPerTrigger", "pollTimeout", "readerName")
_READ_NAMES: Final = (*_SOURCE, "endingEpoch", "asOfEpoch")
_SINK_NAMES: Final = (
    *_SHARED,
    "template",
    "label",
    "writer",
    "txnAppId",
    "txnVersion",
    "keyColumns",
    "as",
    "deadLetter",
    "owner",
    "lease",
)
_SPARKS_OWN: Final = frozenset(["checkpointlocation", "queryname", "outputmode", "failonunsupportedread"])
"""Options that Spark keeps beside ours in the same bag, lower-cased."""


class _Reading:
    """One bag of options, checked against the names that its user may say."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], verb: str) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in given:
            if name.lower() not in names and name.lower() not in _SPARKS_OWN:
                raise UsageError(_unknown(name, known, verb))

    def has(self, name: str) -> bool:
        return name.lower() in self._given

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


def _unknown(name: str, known: tuple[str, ...], verb: str) -> str:
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    hint = f"; did you mean {folded[near[0]]}?" if near else ""
    listed = ", ".join(sorted(each for each in known if each != "path"))
    return f"option {name} is unknown to dataspace {verb}{hint} (known are {listed})"


def _urls(read: _Reading) -> tuple[str, ...]:
    """The addresses of one daemon or several, each once."""
    urls = tuple([parse_url(each.strip()).url for each in _said_url(read).split(",")])
    for url in urls:
        if urls.count(url) > 1:
            raise UsageError(f"option url names the daemon {url} twice")
    return urls


def _url(read: _Reading) -> str:
    """The address of the one daemon that is written to."""
    said = _said_url(read)
    if "," in said:
        raise UsageError(f"option url is {said!r}, but a result goes to one daemon")
    return parse_url(said).url


def _said_url(read: _Reading) -> str:
    """Where the daemon is: ``url``, or what ``load()`` was given, or DATASPACE_URL, or the default."""
    url, path = read.text("url"), read.text("path")
    if url is not None and path is not None and url != path:
        raise UsageError(f"the daemon is named twice, as url {url!r} and as path {path!r}")
    return url or path or default_url()


def _topic(read: _Reading) -> str | None:
    """The topic that is read, if it is not the space; it has no states, and no changes to be counted."""
    topic = read.text("topic")
    for name in ("asOfEpoch", "maxChangesPerTrigger"):
        if topic is not None and read.has(name):
            raise UsageError(f"option {name} is about the facts of a space, and topic {topic} has items")
    return topic


def _pattern(read: _Reading) -> str:
    """The pattern, which for a topic may be left away: every item then."""
    if _topic(read) is not None:
        return read.text("pattern") or "$item"
    return read.needed("pattern", "such as 'present($who:str)'")


def _peers(read: _Reading, urls: Sequence[str]) -> tuple[Peer, ...]:
    """Whom the addresses are, and what they are shown: what the options say, else the environment of here."""
    said, files = read.text("token"), read.text("tokenFile")
    if said is not None and files is not None:
        raise UsageError("token is a token and tokenFile a file that holds one: give one of them")
    token = said if said is not None else read_token(files) if files is not None else default_token()
    default = Tls.default()
    tls = Tls(
        ca=read.text("tlsCa") or default.ca,
        certificate=read.text("tlsCertificate") or default.certificate,
        key=read.text("tlsKey") or default.key,
        server_name=read.text("tlsServerName") or default.server_name,
    )
    space = read.text("space") or MAIN
    return tuple([Peer(url, token, tls, space) for url in urls])


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


def seconds(text: str) -> float:
    """A span of time, as in ``30``, ``30s``, ``250ms``, ``2m``, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?", text)
    if found is None:
        raise ValueError("spans such as 30s, 250ms or 2m")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,17}", text):
        raise ValueError("whole numbers from 1 on")
    return int(text)


def _epoch(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise ValueError("whole numbers from 0 on")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    names = tuple([name.strip() for name in text.split(",")])
    if not all(names):
        raise ValueError("names of columns with commas between them")
    return names


def _form(text: str) -> Literal["fact", "message"]:
    match text.lower():
        case "fact" | "message" as word:
            return word
    raise ValueError("fact and message")


def _owner(text: str) -> Literal["writer", "query"]:
    match text.lower():
        case "writer" | "query" as word:
            return word
    raise ValueError("writer and query")


def _lease(read: _Reading) -> float | None:
    """For how long the facts of a query stay that are its own."""
    bound = read.value("lease", seconds, 60.0)
    if read.value("owner", _owner, "writer") == "writer":
        if read.has("lease"):
            raise UsageError("option lease says how long the facts of owner=query stay: say owner=query too")
        return None
    if read.has("writer"):
        raise UsageError("facts belong to the writer or, with owner=query, to the query: give one of them")
    return bound


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true and false")
    return text.lower() == "true"


def _start(text: str) -> Start:
    match text.lower():
        case "snapshot" | "latest" | "earliest" as word:
            return word
        case _ if re.fullmatch(r"\d{1,18}", text):
            return int(text)
    raise ValueError("snapshot, latest, earliest and epoch numbers")


def _topic_start(text: str) -> Start:
    match text.lower():
        case "latest" | "earliest" as word:
            return word
        case _ if re.fullmatch(r"\d{1,18}", text):
            return int(text)
    time = _time(text)
    if time is None:
        raise ValueError("earliest, latest, numbers of epochs, and times such as [12] or [3, 4]")
    return time


def _time(text: str) -> tuple[int, ...] | None:
    """The coordinates of a time that is written as a list."""
    if not re.fullmatch(r"\[\s*\d{1,18}(\s*,\s*\d{1,18})*\s*\]", text):
        return None
    return tuple(json.loads(text))


def _starts(urls: tuple[str, ...], start: Callable[[str], Start], text: str) -> tuple[Start, ...]:
    """One start for all daemons, or a JSON object with one for each by its address."""
    if not text.startswith("{"):
        return (start(text),) * len(urls)
    try:
        said = {parse_url(url).url: start(str(each)) for url, each in json.loads(text).items()}
    except (json.JSONDecodeError, UsageError) as error:
        raise ValueError(f'JSON such as {{"tcp://HOST:PORT": 12}} ({error})') from None
    if set(said) != set(urls):
        raise ValueError(f"JSON with a start for each of {', '.join(urls)} and no others")
    return tuple([said[url] for url in urls])


def _malformed(text: str) -> Malformed:
    match text.lower():
        case "fail" | "drop" | "null" as word:
            return word
    raise ValueError("fail, drop and null")


def _first(text: str) -> Literal["earliest"] | int:
    if text.lower() == "earliest":
        return "earliest"
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    raise ValueError("earliest and epoch numbers (for a state instead of changes there is asOfEpoch)")


def _topic_first(text: str) -> Literal["earliest"] | int | tuple[int, ...]:
    if text.lower() == "earliest":
        return "earliest"
    time = int(text) if re.fullmatch(r"\d{1,18}", text) else _time(text)
    if time is None:
        raise ValueError("earliest, numbers of epochs, and times such as [12] or [3, 4]")
    return time


def _last(text: str) -> Literal["latest"] | int:
    if text.lower() == "latest":
        return "latest"
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    raise ValueError("latest and epoch numbers")
