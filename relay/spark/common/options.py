"""Options: the names that ``.option(name, value)`` accepts, and their meaning.

Spark hands every source and sink a bag of strings, to which it adds some of its own.  They become a
frozen record here, on the driver, so that nothing further in has to guess; apart from the source and
the sink because both share the rules, and because the rules can then be tested without Spark.

Always: names are camelCase and compared without regard to case; an unknown name fails with the nearest known
name; a value that makes no sense fails with the accepted values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dataspace.errors import UsageError
from dataspace.transport.addresses import parse_url
from dataspace.transport.candidates import parse_urls
from dataspace.transport.credentials import Tls, default_token, read_token
from dataspace.wire.features import MAIN
from relay.spark.common import parsing as values
from relay.spark.common.connections import DaemonPeer
from relay.spark.common.parsing import First, Last, Malformed, Moment, OptionBag, Start, State
from relay.spark.common.versions import check_limits

CARRY_BYTES: Final = 256 * 1024
"""What a task may hand to the driver: some ten thousand rows of three columns."""


@dataclass(frozen=True, slots=True)
class BatchThreshold:
    """What makes a micro-batch: so many changes of one daemon, or so many seconds after the last batch."""

    changes: int
    delay: float


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a streaming query reads: the daemons, the pattern, the beginning, and the amount at a time.

    ``starts`` are as many as ``peers``.  ``max_changes`` counts all changes of the space, whatever the
    pattern, and so do ``max_bytes`` and ``least``.  ``spaces`` are their names where the option gives some,
    for each store the same.
    """

    peers: tuple[DaemonPeer, ...]
    read: str
    topic: str | None
    pattern: str
    starts: tuple[Start, ...]
    max_epochs: int | None
    max_changes: int | None
    max_bytes: int | None
    least: BatchThreshold | None
    partitions: int
    reader: str | None
    include_value: bool
    malformed: Malformed
    fail_on_loss: bool
    connect_timeout: float
    poll_timeout: float
    batch_rows: int
    spaces: tuple[str, ...] = ()
    where: str = ""
    fail_on_erasure: bool = True


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a batch reads: the changes of ``firsts`` to ``lasts``, both included, or the state at ``as_of``.

    Of these there are as many as ``peers``.
    """

    peers: tuple[DaemonPeer, ...]
    read: str
    topic: str | None
    pattern: str
    partitions: int
    include_value: bool
    malformed: Malformed
    firsts: tuple[First, ...]
    lasts: tuple[Last, ...]
    as_of: tuple[State, ...] | None
    fail_on_loss: bool
    connect_timeout: float
    batch_rows: int
    spaces: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How rows become facts, and whose they are.

    Exactly one of ``template`` and ``label`` is given.  ``application`` and ``version`` make a batch
    write repeatable: the same pair is published once.  ``lease`` is the seconds for which facts outlast the
    last batch that their query wrote, None where they are durable.  ``carry_bytes`` is how much of a task may
    ride along with its message instead of being staged.
    """

    peer: DaemonPeer
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
    carry_bytes: int = CARRY_BYTES


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Returns the options of ``readStream``; raises ``UsageError`` for an unknown name or value.

    >>> stream_options({"pattern": "present($who:str)", "startingEpoch": "12"}).starts
    (12,)
    """
    read = OptionBag(given, _KNOWN, "readStream")
    check_limits(filter(read.has, _LIMITS))
    stores, topic = _stores(read), _topic(read)
    spaces = _spaces(read)
    peers = _peers(read, stores, spaces)
    by_peer = partial(values.by_peer, _names(stores, spaces))
    starts: tuple[Start, ...] = tuple(["snapshot" if topic is None else "earliest" for _ in peers])
    beginning = read.one_of(_BEGINNINGS, "where to begin")
    start: Callable[[str], Start] = values.moment
    if beginning == "startingEpoch":
        start = values.start if topic is None else values.topic_start
    return StreamOptions(
        peers=peers,
        spaces=spaces,
        where=read.text("where") or "",
        read=read.value("read", values.reading, "leader"),
        topic=topic,
        pattern=_pattern(read),
        starts=read.value(beginning, partial(by_peer, start), starts),
        max_epochs=read.value("maxEpochsPerTrigger", values.count, None),
        max_changes=read.value("maxChangesPerTrigger", values.count, None),
        max_bytes=read.value("maxBytesPerTrigger", values.size, None),
        least=_least(read),
        partitions=read.value("minPartitions", values.count, 1),
        reader=_reader(read, peers),
        fail_on_erasure=read.value("failOnErasure", values.flag, True),
        include_value=read.value("includeValue", values.flag, False),
        malformed=read.value("malformed", values.malformed, "fail"),
        fail_on_loss=read.value("failOnDataLoss", values.flag, True),
        connect_timeout=read.value("connectTimeout", values.seconds, 30.0),
        poll_timeout=read.value("pollTimeout", values.seconds, 0.25),
        batch_rows=read.value("arrowBatchRows", values.count, 10_000),
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Returns the options of ``spark.read``; raises ``UsageError`` as ``stream_options`` does."""
    read = OptionBag(given, _KNOWN, "read")
    stores, topic = _stores(read), _topic(read)
    spaces = _spaces(read)
    peers = _peers(read, stores, spaces)
    by_peer = partial(values.by_peer, _names(stores, spaces))
    earliest: tuple[First, ...] = tuple(["earliest" for _ in peers])
    latest: tuple[Last, ...] = tuple(["latest" for _ in peers])
    beginning = read.one_of(_BEGINNINGS, "where to begin")
    ending = read.one_of(_ENDINGS, "where to end")
    state = read.one_of(_STATES, "which state to read")
    if read.has(state):
        for name in (beginning, ending):
            if read.has(name):
                raise UsageError(f"{state} asks for a state and {name} for changes: give one kind")
    first: Callable[[str], First] = values.moment
    if beginning == "startingEpoch":
        first = values.first if topic is None else values.topic_first
    last: Callable[[str], Last] = values.moment
    if ending == "endingEpoch":
        last = values.last if topic is None else values.topic_last
    of_state: Callable[[str], State] = values.moment if "imestamp" in state else values.last
    firsts = read.value(beginning, partial(by_peer, first), earliest)
    lasts = read.value(ending, partial(by_peer, last), latest)
    for one, other in zip(firsts, lasts, strict=True):
        if isinstance(one, Moment) and isinstance(other, Moment) and one.micros > other.micros:
            raise UsageError(f"startingTimestamp {one.said} is after endingTimestamp {other.said}")
    return ReadOptions(
        peers=peers,
        spaces=spaces,
        where=read.text("where") or "",
        read=read.value("read", values.reading, "leader"),
        topic=topic,
        pattern=_pattern(read),
        partitions=read.value("minPartitions", values.count, 1),
        include_value=read.value("includeValue", values.flag, False),
        malformed=read.value("malformed", values.malformed, "fail"),
        firsts=firsts,
        lasts=lasts,
        as_of=read.value(state, partial(by_peer, of_state), None),
        fail_on_loss=read.value("failOnDataLoss", values.flag, True),
        connect_timeout=read.value("connectTimeout", values.seconds, 30.0),
        batch_rows=read.value("arrowBatchRows", values.count, 10_000),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Returns the options of ``writeStream`` and ``write``; raises ``UsageError`` as the others do."""
    read = OptionBag(given, _KNOWN, "write")
    template, label = read.text("template"), read.text("label")
    if template is not None and label is not None:
        raise UsageError("template and label both say what a row becomes: give one of them")
    if template is None and label is None:
        raise UsageError(
            "a sink needs either a template such as 'airborne($origin, $n)' or a label; in SQL, with "
            "INSERT INTO t WITH (url '…', template '…') VALUES …, for a table with columns: Spark passes on "
            "no option of CREATE TABLE"
        )
    application, version = read.text("txnAppId"), read.value("txnVersion", values.epoch, None)
    if (application is None) != (version is None):
        there, missing = ("txnVersion", "txnAppId") if application is None else ("txnAppId", "txnVersion")
        raise UsageError(
            f"option {there} is given without {missing}: they go together, a name for the job and a number "
            f"that is higher with every write"
        )
    return SinkOptions(
        peer=_peers(read, [_written(read)], ())[0],
        template=template,
        label=label,
        writer=_writer(read),
        connect_timeout=read.value("connectTimeout", values.seconds, 30.0),
        application=application,
        version=version,
        keys=read.value("keyColumns", values.names, ()),
        messages=read.value("as", values.form, "fact") == "message",
        dead_letter=read.text("deadLetter"),
        lease=_lease(read),
        carry_bytes=read.value("carryBytes", values.epoch, CARRY_BYTES),
    )


def check_names(given: Iterable[str], verb: str) -> None:
    """Raises ``UsageError`` for an unknown name, as it was written: Spark would pass it on in lower case."""
    OptionBag(dict.fromkeys(given, ""), _KNOWN, verb)


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the columns of a source."""

    pattern: str
    include_value: bool
    several: bool
    spaces: bool
    topic: bool
    asserted: bool
    owned: bool


def source_shape(given: Mapping[str, str]) -> Shape:
    """What decides the columns, when it is not known yet whether a stream or a batch will read."""
    read = OptionBag(given, _KNOWN, "read", "readStream")
    topic = _topic(read) is not None
    return Shape(
        _pattern(read),
        read.value("includeValue", values.flag, False),
        len(_stores(read)) > 1,
        bool(_spaces(read)),
        topic,
        read.value("includeAsserted", values.flag, False),
        read.value("includeOwner", values.flag, False),
    )


_BEGINNINGS: Final = ("startingEpoch", "startingTimestamp")
_ENDINGS: Final = ("endingEpoch", "endingTimestamp")
_STATES: Final = ("asOfEpoch", "asOfTimestamp", "versionAsOf", "timestampAsOf")
"""Options that say the same in several ways; the last two are the names in Delta."""

_LIMITS: Final = (
    "maxEpochsPerTrigger",
    "maxChangesPerTrigger",
    "maxBytesPerTrigger",
    "minChangesPerTrigger",
    "maxTriggerDelay",
)
"""How much a micro-batch may be, and must be."""

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
    "read",
    "archive",
    "archiveIdentity",
    "pattern",
    "where",
    "topic",
    "spaces",
    *_BEGINNINGS,
    "failOnDataLoss",
    "arrowBatchRows",
    "minPartitions",
    "includeValue",
    "includeAsserted",
    "includeOwner",
    "malformed",
)
_KNOWN: Final = {
    "readStream": (
        *_SOURCE,
        *_LIMITS,
        "pollTimeout",
        "readerName",
        "failOnErasure",
    ),
    "read": (*_SOURCE, *_ENDINGS, *_STATES),
    "write": (
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
        "carryBytes",
    ),
}
"""The options of each verb; a stream is written with the same options as a batch."""


def _stores(read: OptionBag) -> tuple[tuple[str, ...], ...]:
    """The addresses of each daemon that is read, or of each store: by the first address it is known."""
    text = _said_url(read)
    if text is None:
        return (("",),)
    stores = tuple([_store(each) for each in text.split(",")])
    urls = [url for store in stores for url in store]
    for url in urls:
        if urls.count(url) > 1:
            raise UsageError(f"option url names the daemon {url} twice")
    return stores


def _store(text: str) -> tuple[str, ...]:
    """The addresses of one store, which have bars between them."""
    return tuple([parse_url(each.strip()).url for each in text.split("|")])


def _written(read: OptionBag) -> tuple[str, ...]:
    """The addresses of the one store that is written to."""
    said = _said_url(read) or ""
    if "," in said:
        raise UsageError(f"option url is {said!r}, but a result goes to one daemon")
    return _store(said)


def _said_url(read: OptionBag) -> str | None:
    """Where the daemon is: ``url``, or what ``load()`` was given, or DATASPACE_URL, or the default.

    None where only an archive is named: then there is no daemon.
    """
    url, path = read.text("url"), read.text("path")
    if url is not None and path is not None and url != path:
        raise UsageError(f"the daemon is named twice, as url {url!r} and as path {path!r}")
    if not (url or path or os.environ.get("DATASPACE_URL")) and read.text("archive") is not None:
        return None
    return url or path or default_option()


def default_option() -> str:
    """Returns the option ``url`` for ``$DATASPACE_URL``, where commas divide addresses of one store."""
    return "|".join(each.url for each in parse_urls(None))


def _topic(read: OptionBag) -> str | None:
    """The topic that is read, if it is not the space; it has no states, and no changes to be counted."""
    topic = read.text("topic")
    for name in (*_STATES, *_LIMITS[1:]):
        if topic is not None and read.has(name):
            raise UsageError(f"option {name} is about the facts of a space, and topic {topic} has items")
    for name, other in (("startingTimestamp", "startingEpoch"), ("endingTimestamp", "endingEpoch")):
        if topic is not None and read.has(name):
            raise UsageError(
                f"option {name} is a time of day, and the epochs of topic {topic} have times of their own: "
                f"give {other}, such as [12]"
            )
    return topic


def _least(read: OptionBag) -> BatchThreshold | None:
    """What a micro-batch waits for."""
    changes = read.value("minChangesPerTrigger", values.count, None)
    if changes is None:
        if read.has("maxTriggerDelay"):
            raise UsageError(
                "option maxTriggerDelay says how long minChangesPerTrigger may delay a batch: give that too"
            )
        return None
    most = read.value("maxChangesPerTrigger", values.count, None)
    if most is not None and most < changes:
        raise UsageError(f"minChangesPerTrigger {changes} is more than maxChangesPerTrigger {most}")
    return BatchThreshold(changes, read.value("maxTriggerDelay", values.seconds, 900.0))


def _archive(read: OptionBag) -> tuple[str, str]:
    """The prefix of the archive and the identity that chooses one of its logs, empty where not given."""
    archive, identity = read.text("archive") or "", read.text("archiveIdentity") or ""
    if identity and not archive:
        raise UsageError("option archiveIdentity chooses a log of an archive: give archive too")
    if archive and read.has("topic"):
        raise UsageError("option archive has the epochs of spaces, and a topic is read from its daemon")
    return archive, identity


def _reader(read: OptionBag, peers: Sequence[DaemonPeer]) -> str | None:
    """The name under which the daemon keeps what is unread."""
    name = read.text("readerName")
    if name is not None and not peers[0].url:
        raise UsageError(
            "option readerName has a daemon keep what is unread, and there is none: give url, or leave "
            "readerName out, since an archive keeps everything"
        )
    return name


def _pattern(read: OptionBag) -> str:
    """The pattern, which for a topic may be left away: every item then."""
    if _topic(read) is not None:
        return read.text("pattern") or "$item"
    return read.needed(
        "pattern",
        "such as 'present($who:str)'; of a table of Spark's catalog, with SELECT … FROM t WITH (pattern '…')",
    )


def _spaces(read: OptionBag) -> tuple[str, ...]:
    """The spaces that are read as one; a name may be a pattern, such as ``plant-*``."""
    text = read.text("spaces")
    if text is None:
        return ()
    for other, why in (("space", "one dataspace"), ("topic", "a topic, which the space main has")):
        if read.has(other):
            raise UsageError(f"option {other} names {why}, and option spaces several: give one of them")
    names = tuple([each.strip() for each in text.split(",")])
    for name in names:
        if not name or names.count(name) > 1:
            raise UsageError(f"option spaces is {text!r}: names with commas are needed, each one once")
    return names


def _names(stores: Sequence[tuple[str, ...]], spaces: Sequence[str]) -> tuple[str, ...]:
    """The names of the peers: addresses, or spaces of one store; spaces of several stores have none."""
    if not spaces:
        return tuple([store[0] for store in stores])
    return tuple(spaces) if len(stores) == 1 else ("",) * (len(stores) * len(spaces))


def _peers(
    read: OptionBag, stores: Sequence[tuple[str, ...]], spaces: Sequence[str]
) -> tuple[DaemonPeer, ...]:
    """Returns each space of each store, with the credentials of the options, else of this process's
    environment."""
    given, files = read.text("token"), read.text("tokenFile")
    if given is not None and files is not None:
        raise UsageError("token is a token and tokenFile a file that holds one: give one of them")
    token = given if given is not None else read_token(files) if files is not None else default_token()
    default = Tls.default()
    tls = Tls(
        ca=read.text("tlsCa") or default.ca,
        certificate=read.text("tlsCertificate") or default.certificate,
        key=read.text("tlsKey") or default.key,
        server_name=read.text("tlsServerName") or default.server_name,
    )
    archive, identity = _archive(read)
    return tuple(
        [
            DaemonPeer(url, token, tls, space, tuple(others), archive=archive, identity=identity)
            for url, *others in stores
            for space in spaces or (read.text("space") or MAIN,)
        ]
    )


def _writer(read: OptionBag) -> str | None:
    """Returns the durable owner of the facts; a lease is none, since nothing would renew it."""
    writer = read.text("writer")
    if writer is not None and writer.strip().startswith("lease:"):
        raise UsageError(
            f"option writer is {writer!r}, which names a lease: its facts would go, since nothing renews it. "
            f"For facts that go with the query say owner=query and lease=…, else give another name"
        )
    return writer


def _lease(read: OptionBag) -> float | None:
    """For how long the facts of a query stay that are its own."""
    bound = read.value("lease", values.seconds, 60.0)
    if read.value("owner", values.owner, "writer") == "writer":
        if read.has("lease"):
            raise UsageError("option lease says how long the facts of owner=query stay: say owner=query too")
        return None
    if read.has("writer"):
        raise UsageError("facts belong to the writer or, with owner=query, to the query: give one of them")
    return bound
