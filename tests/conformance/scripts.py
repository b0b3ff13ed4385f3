"""The sessions of the kit: what an application has a client do, and what the client must say.

Where a step is ``hears("Accepted")``, the packet is the one that a real daemon answers, which ``recording``
asks.  Where it is a whole packet, it is one that a daemon seldom sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dataspace.codec import pack
from index.values.jsons import to_json

Json = Any
Step = dict[str, Json]


@dataclass(frozen=True)
class Script:
    """One session; ``recorded`` if a real daemon is asked for what the client hears."""

    name: str
    about: str
    steps: list[Step]
    recorded: bool = True


def free(name: str, sample: Json = None) -> Json:
    """Returns what stands for something that the client chooses; the recorder, as a client, chooses the
    sample."""
    return {"?": name} if sample is None else {"?": name, "sample": sample}


def known(name: str) -> Json:
    """Returns what stands for ``session`` or ``secret`` of the welcome, or a ``producer`` that has joined."""
    return {"known": name}


def do(command: str, /, **more: Json) -> Step:
    return {"do": {"do": command, **{name.removesuffix("_"): value for name, value in more.items()}}}


def says(packet: str, *fields: Json, arrives: bool = True, answered: bool = True) -> Step:
    """The client sends a packet; it may be lost on its way, or what answers it."""
    step: Step = {"says": [packet, *fields]}
    if not arrives:
        step["lost"] = "packet"
    elif not answered:
        step["lost"] = "answer"
    return step


def hears(packet: str, *fields: Json) -> Step:
    return {"hears": [packet, *fields]}


def gives(of: str, **event: Json) -> Step:
    return {"gives": {"of": of, **event}}


def record(label: str, *fields: Json) -> Json:
    return {"@": label, "fields": list(fields)}


CUT: Final[Step] = {"cut": "connection"}
ANOTHER: Final[Step] = {"cut": "space"}
"""The connection is lost; with ``space``, what answers at the address afterwards is another space."""

CLIENT: Final = free("client", "~c0ffee")
PATTERN: Final = record("present", record("$", "who", None, record("_")))
OPENED: Final[Json] = {"kind": "observe", "pattern": PATTERN}
LEASE: Final = free("lease", "lease:60000:kit-c0ffee")
SHORT: Final = free("lease", "lease:2000:kit-c0ffee")
"""The lease of a client that asks for a minute; the recorder asks for one that it sees the end of."""
TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ANYONE: Final = record("present", record("_"))
CREDIT: Final = (free("items", 1024), free("bytes", 1 << 20))


def hello(**features: Json) -> Step:
    return says("Hello", 1, CLIENT, "kit", features)


def begin(features: Json = None, /, **options: Json) -> list[Step]:
    features = {name: options[name] for name in ("grace", "heartbeat") if name in options} | (features or {})
    return [
        do("connect", options={"name": "kit", **options}),
        hello(**features),
        hears("Welcome"),
        gives("connect", done=True),
        gives("connection", change="connected"),
    ]


def turn(name: str, *actions: Json) -> Step:
    return do("turn", as_=name, actions=list(actions))


def opens(**more: Json) -> Step:
    return says("Open", free("stream", 1), {**OPENED, **more}, *CREDIT)


def observes(**options: Json) -> list[Step]:
    return [do("observe", as_="seen", pattern="present($who)", options=options), opens()]


def reads(number: int, added: Json = (), messages: Json = (), removed: Json = (), **more: Json) -> list[Step]:
    rows = {"added": added, "messages": messages, "removed": removed}
    changes = {"number": number, **{name: [[each] for each in row] for name, row in rows.items()}, **more}
    return [do("read", of="seen"), gives("seen", changes=changes)]


def expecting(name: str, expects: Json, *actions: Json) -> Step:
    return do("turn", as_=name, actions=list(actions), expects=expects)


def tracing(name: str, expects: Json, *actions: Json) -> Step:
    return do("turn", as_=name, actions=list(actions), expects=expects, traceparent=TRACEPARENT)


def says_expecting(number: str, sample: int, expected: Json, *actions: Json, **lost: bool) -> Step:
    return says("ConditionalTurn", free(number, sample), "main", "", list(actions), expected, **lost)


def says_traced(number: str, sample: int, expected: Json, *actions: Json, **lost: bool) -> Step:
    return says(
        "TracedTurn", free(number, sample), "main", "", list(actions), expected, [], TRACEPARENT, **lost
    )


def asks_lease(number: str, sample: int, lease: Json, verb: str = "lease") -> list[Step]:
    return [says("Request", free(number, sample), verb, {"owner": lease}), hears("Answer")]


def leased(number: str, sample: int, lease: Json, *actions: Json) -> Step:
    return says("Turn", free(number, sample), "main", lease, list(actions))


def begin_leased(lease: Json) -> list[Step]:
    """Returns the steps by which a client connects that has its facts under a lease."""
    return [
        do("connect", options={"name": "kit", "lease": 60_000}),
        hello(),
        hears("Welcome"),
        *asks_lease("one", 101, lease),
        gives("connect", done=True),
        gives("connection", change="connected"),
    ]


def end_leased(lease: Json) -> list[Step]:
    """Returns the steps by which it ends, and its lease with it."""
    return [
        do("close"),
        *asks_lease("three", 103, lease, "release"),
        says("Bye", "", ""),
        gives("close", done=True),
    ]


def says_turn(number: str, sample: int, *actions: Json, **lost: bool) -> Step:
    return says("Turn", free(number, sample), "main", "", list(actions), **lost)


def items(*values: str) -> Json:
    """Returns items as they travel: bytes that hold an array."""
    return to_json(pack(values))


def produces(number: str, sample: int, *steps: Json) -> list[Step]:
    return [says("Produce", free(number, sample), known("producer"), list(steps)), hears("Answer")]


END: Final = [do("close"), says("Bye", "", ""), gives("close", done=True)]

ALICE, BEN, BELL = (record("present", who) for who in ("Alice", "Ben", "bell"))
DOOR: Final = record("door", "open")
HANDLE, OTHER, THIRD = free("handle-1", 1), free("handle-2", 2), free("handle-3", 3)

UNMET: Final[Json] = {"expectation": 1, "rows": [["Alice"]], "count": 1, "epoch": 0}

JOINING: Final[Json] = {"topic": "orders", "partition": 0, "partitions": 1, "dimensions": 0, "retain": 0}

RECORDED: Final = [
    Script(
        "turns",
        "What each action of a turn is, and what a refusal gives.",
        [
            *begin(),
            turn("first", ["assert", "a", ALICE], ["send", BELL]),
            says_turn("first", 1, [0, HANDLE, ALICE], [2, BELL]),
            hears("Accepted"),
            gives("first", epoch=1),
            turn("second", ["replace", "a", BEN], ["assert", "b", ALICE]),
            says_turn("second", 2, [3, HANDLE, OTHER, BEN], [0, THIRD, ALICE]),
            hears("Accepted"),
            gives("second", epoch=2),
            turn("third", ["retract", "b"]),
            says_turn("third", 3, [1, THIRD]),
            hears("Accepted"),
            gives("third", epoch=3),
            turn("fourth", ["retract", "b"]),
            says_turn("fourth", 4, [1, THIRD]),
            hears("Refusal"),
            gives("fourth", error="unknown-handle"),
            *END,
        ],
    ),
    Script(
        "observing",
        "The state comes first, then each epoch whole; an observation that has ended is aborted.",
        [
            *begin(),
            *observes(),
            hears("Values"),
            *reads(0),
            turn("both", ["assert", "a", ALICE], ["send", BELL]),
            says_turn("both", 1, [0, HANDLE, ALICE], [2, BELL]),
            hears("Values"),
            hears("Accepted"),
            *reads(2, ["Alice"], ["bell"], first=2),
            gives("both", epoch=2),
            do("stop", of="seen"),
            says("Abort", free("stream", 1), free("reason", ""), free("answer", False)),
            *END,
        ],
    ),
    Script(
        "asking",
        "The matches of a pattern, a request, and one that is denied.",
        [
            *begin(),
            turn("both", ["assert", "a", ALICE], ["assert", "b", BEN]),
            says_turn("both", 1, [0, HANDLE, ALICE], [0, OTHER, BEN]),
            hears("Accepted"),
            gives("both", epoch=1),
            do("matches", as_="who", pattern="present($who)"),
            opens(quiet=True),
            hears("Values"),
            gives("who", rows=[["Alice"], ["Ben"]]),
            says("Abort", free("stream", 1), free("reason", ""), free("answer", False)),
            do("request", as_="sync", verb="sync", arguments={}),
            says("Request", free("one", 1), "sync", {}),
            hears("Answer"),
            gives("sync", answer=1),
            do("request", as_="none", verb="no-such-verb", arguments={}),
            says("Request", free("two", 2), "no-such-verb", {}),
            hears("Denied"),
            gives("none", error="unknown-verb"),
            *END,
        ],
    ),
    Script(
        "resumed",
        "A session with a grace goes on: turns without an answer are sent again under their numbers, then"
        " streams are opened after the last epoch that came; no fact is asserted again.",
        [
            *begin(grace=60_000),
            *observes(),
            hears("Values"),
            *reads(0),
            turn("assert", ["assert", "a", ALICE]),
            says_turn("one", 1, [0, HANDLE, ALICE]),
            hears("Values"),
            hears("Accepted"),
            *reads(2, ["Alice"]),
            gives("assert", epoch=2),
            turn("lost", ["send", BELL]),
            says_turn("two", 2, [2, BELL], arrives=False),
            CUT,
            hello(grace=60_000, resume=[known("session"), known("secret")]),
            hears("Welcome"),
            says_turn("two", 2, [2, BELL]),
            opens(after=2),
            hears("Accepted"),
            hears("Values"),
            gives("lost", epoch=3),
            *reads(3, (), ["bell"]),
            gives("connection", change="lost"),
            gives("connection", change="resumed"),
            *END,
        ],
    ),
    Script(
        "anew",
        "A session that has ended: what stood is asserted again, under new numbers, and streams show the net"
        " difference.",
        [
            *begin(),
            *observes(),
            hears("Values"),
            *reads(0),
            turn("one", ["assert", "a", ALICE], ["assert", "b", BEN]),
            says_turn("one", 1, [0, HANDLE, ALICE], [0, OTHER, BEN]),
            hears("Values"),
            hears("Accepted"),
            *reads(2, ["Alice", "Ben"]),
            gives("one", epoch=2),
            turn("two", ["retract", "b"]),
            says_turn("two", 2, [1, OTHER]),
            hears("Values"),
            hears("Accepted"),
            *reads(3, (), (), ["Ben"]),
            gives("two", epoch=3),
            CUT,
            hello(),
            hears("Welcome"),
            says_turn("three", 3, [0, HANDLE, ALICE]),
            opens(after=3, net=True),
            hears("Accepted"),
            turn("four", ["send", BELL]),
            says_turn("four", 4, [2, BELL]),
            hears("Values"),
            hears("Accepted"),
            *reads(7, (), ["bell"]),
            gives("four", epoch=7),
            *END,
        ],
    ),
    Script(
        "answer-lost",
        "A turn that was applied, and whose answer was lost, is sent again for its answer alone; what it"
        " asserted has ended with the session, and is asserted again.",
        [
            *begin(),
            turn("one", ["assert", "a", ALICE]),
            says_turn("one", 1, [0, HANDLE, ALICE], answered=False),
            CUT,
            hello(),
            hears("Welcome"),
            says_turn("one", 1, [0, HANDLE, ALICE]),
            says_turn("again", 2, [0, HANDLE, ALICE]),
            hears("Accepted"),
            hears("Accepted"),
            gives("one", epoch=1),
            turn("two", ["retract", "a"]),
            says_turn("two", 3, [1, HANDLE]),
            hears("Accepted"),
            gives("two", epoch=4),
            *END,
        ],
    ),
    Script(
        "turn-lost",
        "A turn that never came to the daemon is sent after what stood is asserted again, under a number"
        " above that.",
        [
            *begin(),
            turn("one", ["assert", "a", ALICE]),
            says_turn("one", 1, [0, HANDLE, ALICE]),
            hears("Accepted"),
            gives("one", epoch=1),
            turn("two", ["replace", "a", BEN]),
            says_turn("two", 2, [3, HANDLE, OTHER, BEN], arrives=False),
            CUT,
            hello(),
            hears("Welcome"),
            says_turn("again", 2, [0, HANDLE, ALICE]),
            says_turn("later", 3, [3, HANDLE, OTHER, BEN]),
            hears("Accepted"),
            hears("Accepted"),
            gives("two", epoch=4),
            *END,
        ],
    ),
    Script(
        "another-space",
        "Another space: turns without an answer are lost and not sent to it, facts are asserted in it,"
        " and an observation shows how its state differs from what was known.",
        [
            *begin(grace=60_000),
            *observes(),
            hears("Values"),
            *reads(0),
            turn("one", ["assert", "a", ALICE]),
            says_turn("one", 1, [0, HANDLE, ALICE]),
            hears("Values"),
            hears("Accepted"),
            *reads(2, ["Alice"]),
            gives("one", epoch=2),
            turn("two", ["assert", "b", BEN]),
            says_turn("two", 2, [0, OTHER, BEN], arrives=False),
            ANOTHER,
            hello(grace=60_000, resume=[known("session"), known("secret")]),
            hears("Welcome"),
            says_turn("again", 1, [0, HANDLE, ALICE]),
            opens(),
            hears("Accepted"),
            hears("Values"),
            gives("two", error="another-space"),
            *reads(1),
            gives("connection", change="lost"),
            gives("connection", change="another-space"),
            *END,
        ],
    ),
    Script(
        "expectations",
        "A turn happens only if all that it expects holds, and is refused with what was found; one without an"
        " answer is sent again with what it expects.",
        [
            *begin({"expectations": True}, grace=60_000),
            expecting("one", [["absent", "present(_)"]], ["assert", "a", ALICE]),
            says_expecting("first", 1, [[0, ANYONE]], [0, HANDLE, ALICE]),
            hears("Accepted"),
            gives("one", epoch=1),
            expecting("two", [["absent", "present($who)"]], ["assert", "b", BEN]),
            says_expecting("second", 2, [[0, PATTERN]], [0, OTHER, BEN]),
            hears("Unmet"),
            gives("two", error="expectation", found=UNMET),
            expecting(
                "three",
                [["exactly", "present($who)", [["Alice"]]], ["unchanged", "present(_)", 1]],
                ["replace", "a", BEN],
            ),
            says_expecting(
                "third",
                3,
                [[1, PATTERN, [["Alice"]]], [2, ANYONE, 1]],
                [3, HANDLE, THIRD, BEN],
                arrives=False,
            ),
            CUT,
            hello(grace=60_000, expectations=True, resume=[known("session"), known("secret")]),
            hears("Welcome"),
            says_expecting("third", 3, [[1, PATTERN, [["Alice"]]], [2, ANYONE, 1]], [3, HANDLE, THIRD, BEN]),
            hears("Accepted"),
            gives("three", epoch=2),
            *END,
        ],
    ),
    Script(
        "lease",
        "Facts of a lease: turns are in its name; after the connection was lost it is requested again before"
        " anything else, and its facts stand; the end of the client is its end.",
        [
            *begin_leased(LEASE),
            turn("first", ["assert", "a", ALICE]),
            leased("turn", 1, LEASE, [0, HANDLE, ALICE]),
            hears("Accepted"),
            gives("first", epoch=1),
            CUT,
            hello(),
            hears("Welcome"),
            *asks_lease("two", 102, LEASE),
            turn("second", ["retract", "a"]),
            leased("later", 2, LEASE, [1, HANDLE]),
            hears("Accepted"),
            gives("second", epoch=2),
            *end_leased(LEASE),
        ],
    ),
    Script(
        "lease-ended",
        "A lease that was not renewed in time: its fact goes, and observers see that. The next turn of the"
        " client is refused; it requests the lease again, asserts its facts again, and sends the turn again.",
        [
            *begin_leased(SHORT),
            *observes(),
            hears("Values"),
            *reads(0),
            turn("first", ["assert", "a", ALICE]),
            leased("turn", 1, SHORT, [0, HANDLE, ALICE]),
            hears("Values"),
            hears("Accepted"),
            *reads(2, ["Alice"]),
            gives("first", epoch=2),
            hears("Values"),
            *reads(3, (), (), ["Alice"]),
            turn("second", ["assert", "b", DOOR]),
            leased("late", 2, SHORT, [0, OTHER, DOOR]),
            hears("Refusal"),
            *asks_lease("two", 102, SHORT),
            gives("connection", change="lease-ended"),
            leased("again", 3, SHORT, [0, HANDLE, ALICE]),
            # unobserved, since the values of two epochs may come as one
            leased("later", 4, SHORT, [0, OTHER, DOOR]),
            hears("Values"),
            hears("Accepted"),
            hears("Accepted"),
            *reads(4, ["Alice"]),
            gives("second", epoch=5),
            gives("connection", change="anew"),
            *end_leased(SHORT),
        ],
    ),
    Script(
        "publishing",
        "A producer joins a topic, sends items at its time, finishes an epoch in one step, and leaves.",
        [
            *begin(),
            do("publish", as_="to", topic="orders", options={}),
            says("Request", free("one", 101), "join", JOINING),
            hears("Answer"),
            gives("to", time=0),
            do("step", of="to", step=["send", ["a", "b"]]),
            *produces("two", 102, [0, 0, items("a", "b")]),
            gives("to", done="send"),
            do("step", of="to", step=["finish", ["c"], 5]),
            *produces("three", 103, [5, 0, items("c"), [[0, -1], [5, 1]]]),
            gives("to", done="finish"),
            do("step", of="to", step=["close"]),
            *produces("four", 104, [2]),
            gives("to", done="close"),
            *END,
        ],
    ),
]
"""Sessions whose packets of the daemon are those of a real one."""

WELCOME: Final[Json] = ["Welcome", 1, 1, "space-1", 5, 0, {"frame_bytes": 65_536}, {}]
STREAM: Final = free("stream")
SECRET: Final[Json] = {"@bytes": "AAECAwQFBgcICQoLDA0ODw=="}
TOPIC: Final[Json] = {"id": 7, "partitions": 2, "dimensions": 0, "retain": 1000, "durable": False}
SUBSCRIBED: Final[Json] = {
    "kind": "topic",
    "topic": "orders",
    "id": 7,
    "partitions": [0, 1],
    "policy": "fail",
}
NOW: Final = 1_700_000_000_000_000


def begin_made(limits: Json = None, **options: Json) -> list[Step]:
    steps = begin(**options)
    steps[2] = hears(*WELCOME[:6], limits or WELCOME[6], options)
    return steps


def epoch(number: int, flags: int, *rows: Json, first: int | None = None) -> Json:
    lists = [[[each] for each in row] for row in (*rows, (), (), ())[:3]]
    return [number, NOW, flags, *lists, number if first is None else first]


MADE: Final = [
    Script(
        "parts",
        "A state in three values is one epoch; so is one in two frames. A value may stand for several epochs,"
        " and a mark for what was dropped.",
        [
            *begin_made(),
            *observes(),
            hears("Values", STREAM, 0, [epoch(5, 3, ["a", "b"]), epoch(5, 3, ["c"])], 1),
            hears("Values", STREAM, 2, [epoch(5, 2, ["d"])], 0),
            *reads(5, ["a", "b", "c", "d"]),
            hears("Values", STREAM, 3, [epoch(6, 1, ["e"], ["f"]), epoch(6, 0, (), ["g"], ["a"])], 0),
            *reads(6, ["e"], ["f", "g"], ["a"]),
            hears("Values", STREAM, 5, [epoch(9, 4, ["h"], (), ["b"], first=7)], 0),
            *reads(9, ["h"], (), ["b"], first=7),
            hears("Values", STREAM, 6, [record("lost", 40, 10, 12)], 0),
            *reads(12, first=10, lost=40),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "pace",
        "An observation with a pace is opened with it, also after a lost connection, and then with the net"
        " difference of what happened meanwhile, even if the session was resumed.",
        [
            do("connect", options={"name": "kit", "grace": 60_000}),
            hello(grace=60_000),
            hears(*WELCOME[:7], {"grace": 60_000, "secret": SECRET}),
            gives("connect", done=True),
            gives("connection", change="connected"),
            do("observe", as_="seen", pattern="present($who)", options={"pace": 100}),
            opens(pace=100),
            hears("Values", STREAM, 0, [epoch(5, 2, ["a"])], 0),
            *reads(5, ["a"]),
            hears("Values", STREAM, 1, [epoch(9, 4, ["b"], ["c", "d"], ["a"], first=7)], 0),
            *reads(9, ["b"], ["c", "d"], ["a"], first=7),
            CUT,
            hello(grace=60_000, resume=[1, SECRET]),
            hears(*WELCOME[:4], 20, *WELCOME[5:7], {"grace": 60_000, "resumed": True, "secret": SECRET}),
            opens(after=9, net=True, pace=100),
            hears("Values", STREAM, 0, [epoch(20, 4, ["e"], (), ["b"], first=12)], 0),
            *reads(20, ["e"], (), ["b"], first=12),
            gives("connection", change="lost"),
            gives("connection", change="resumed"),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "credit",
        "An observation with a window of two values requests two, and one more for each that is read.",
        [
            *begin_made(),
            do("observe", as_="seen", pattern="present($who)", options={"window": 2}),
            says("Open", STREAM, OPENED, 2, free("bytes")),
            hears("Values", STREAM, 0, [epoch(5, 2), epoch(6, 0, ["a"])], 0),
            {"credit": [STREAM, 2]},
            *reads(5),
            {"credit": [STREAM, 3]},
            *reads(6, ["a"]),
            {"credit": [STREAM, 4]},
            hears("Values", STREAM, 2, [epoch(7, 1, ["b"]), epoch(7, 1, ["c"])], 1),
            hears("Values", STREAM, 4, [epoch(7, 0, ["d"])], 0),
            *reads(7, ["b", "c", "d"]),
            {"credit": [STREAM, 7]},
            *END,
        ],
        recorded=False,
    ),
    Script(
        "epoch-gone",
        "The log does not go back to the last epoch that came: the stream is opened with the state, and the"
        " observation goes on with the difference.",
        [
            *begin_made(),
            *observes(),
            hears("Values", STREAM, 0, [epoch(5, 2, ["a", "b"])], 0),
            *reads(5, ["a", "b"]),
            CUT,
            hello(),
            hears(*WELCOME[:2], 2, "space-1", 50, 0, WELCOME[6], {}),
            opens(after=5, net=True),
            hears("Error", STREAM, "epoch-gone", "the log begins with epoch 40"),
            says("Open", free("second"), OPENED, *CREDIT),
            hears("Values", free("second"), 0, [epoch(50, 2, ["b", "c"])], 0),
            *reads(50, ["c"], (), ["a"], first=6),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "reached",
        "What a client is told that it has missed nothing up to is where it opens the stream again.",
        [
            *begin_made(),
            *observes(),
            hears("Values", STREAM, 0, [epoch(5, 2)], 0),
            *reads(5),
            hears("Reached", 40, [STREAM]),
            CUT,
            hello(),
            hears(*WELCOME[:2], 2, "space-1", 50, 0, WELCOME[6], {}),
            opens(after=40, net=True),
            hears("Values", STREAM, 0, [epoch(41, 0, ["a"])], 0),
            *reads(41, ["a"]),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "unauthorized",
        "A goodbye instead of a welcome: the client does not try again.",
        [
            do("connect", options={"name": "kit", "token": "wrong"}),
            hello(token="wrong"),
            hears("Bye", "unauthorized", "the token is unknown to this daemon"),
            gives("connect", error="unauthorized"),
        ],
        recorded=False,
    ),
    Script(
        "superseded",
        "A goodbye with a code ends the client: what waits gets the code, and nothing is sent again.",
        [
            *begin_made(),
            *observes(),
            turn("waits", ["assert", "a", ALICE]),
            says_turn("waits", 1, [0, HANDLE, ALICE]),
            do("read", of="seen"),
            hears("Bye", "superseded", "another connection has come with the same client"),
            {"cut": "for good"},
            gives("waits", error="superseded"),
            gives("seen", error="superseded"),
            gives("connection", change="ended"),
        ],
        recorded=False,
    ),
    Script(
        "limits",
        "A turn beyond the limits of the welcome is refused by the client, since the daemon would end the"
        " session; what is asserted again is cut to fit.",
        [
            *begin_made({"frame_bytes": 65_536, "actions_per_turn": 2}),
            turn("long", ["send", record("present", "x" * 70_000)]),
            gives("long", error="limit"),
            turn("two", ["assert", "a", ALICE], ["assert", "b", BEN]),
            says_turn("two", 1, [0, HANDLE, ALICE], [0, OTHER, BEN]),
            hears("Accepted", free("two"), [6]),
            gives("two", epoch=6),
            turn("third", ["assert", "c", BELL]),
            says_turn("third", 2, [0, THIRD, BELL]),
            hears("Accepted", free("third"), [7]),
            gives("third", epoch=7),
            CUT,
            hello(),
            hears(*WELCOME[:2], 2, "space-1", 8, 2, {"frame_bytes": 65_536, "actions_per_turn": 2}, {}),
            says_turn("again", 3, [0, HANDLE, ALICE], [0, OTHER, BEN]),
            says_turn("more", 4, [0, THIRD, BELL]),
            hears("Accepted", free("again"), [9, 10]),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "traces",
        "A turn says of which trace it is a part to a daemon that makes spans, also when it is sent again; to"
        " any other it does not.",
        [
            *begin({"traces": True})[:2],
            hears(*WELCOME[:7], {"traces": True, "expectations": True}),
            *begin()[3:],
            tracing("one", [], ["send", BELL]),
            says_traced("one", 1, [], [2, BELL]),
            hears("Accepted", free("one"), [6]),
            gives("one", epoch=6),
            tracing("two", [["absent", "present(_)"]], ["send", BEN]),
            says_traced("two", 2, [[0, ANYONE]], [2, BEN]),
            hears("Accepted", free("two"), [7]),
            gives("two", epoch=7),
            turn("three", ["send", BELL]),
            says_turn("three", 3, [2, BELL]),
            hears("Accepted", free("three"), [8]),
            gives("three", epoch=8),
            tracing("four", [], ["send", ALICE]),
            says_traced("four", 4, [], [2, ALICE], arrives=False),
            CUT,
            hello(traces=True),
            hears(*WELCOME[:2], 2, "space-1", 8, 3, WELCOME[6], {"traces": True}),
            says_traced("four", 4, [], [2, ALICE], arrives=False),
            CUT,
            hello(traces=True),
            hears(*WELCOME[:2], 3, "space-1", 8, 3, WELCOME[6], {}),
            says_turn("four", 4, [2, ALICE]),
            hears("Accepted", free("four"), [9]),
            gives("four", epoch=9),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "heartbeat",
        "With a heartbeat agreed on, a client that has nothing to say pings; of a daemon that is silent for"
        " two intervals it takes the connection as lost.",
        [
            *begin_made(heartbeat=100),
            says("Ping", free("ping")),
            {"cut": "by the client"},
            hello(heartbeat=100),
            hears(*WELCOME[:2], 2, "space-1", 5, 0, WELCOME[6], {}),
            gives("connection", change="lost"),
            gives("connection", change="anew"),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "later-daemons",
        "More fields of a packet and more keys of a map than are known are ignored; a ping is answered.",
        [
            *begin_made({"frame_bytes": 65_536, "later": {"k": [1]}}),
            hears("Ping", 7),
            says("Pong", 7),
            turn("one", ["send", BELL]),
            says_turn("one", 1, [2, BELL]),
            hears("Accepted", free("one"), [6], {"later": 1}, None),
            gives("one", epoch=6),
            *END,
        ],
        recorded=False,
    ),
    Script(
        "subscribing",
        "Epochs of a topic come whole, once no more of them can come from any partition; one that had begun"
        " before is dropped; a producer that vanished is named. After a lost connection the subscription goes"
        " on at its frontier.",
        [
            *begin_made(),
            do("subscribe", as_="orders", topic="orders", options={}),
            says("Request", free("one"), "lookup", {"topic": "orders", "wait": free("wait")}),
            hears("Answer", free("one"), TOPIC),
            says("Open", STREAM, SUBSCRIBED, *CREDIT),
            hears("Values", STREAM, 0, [[0, 0, [2], [2]], [0, 1, [3], []]], 0),
            gives("orders", partitions=[0, 1]),
            hears("Values", STREAM, 2, [[2, 0, 2, items("half")], [2, 1, 3, items("b", "c")]], 0),
            hears("Values", STREAM, 4, [[2, 0, 3, items("a")], [1, 0, [[2, -1], [4, 1]]]], 0),
            hears("Values", STREAM, 6, [[1, 1, [[3, -1], [4, 1]]]], 0),
            do("epoch", of="orders"),
            gives("orders", time=3, items=["a", "b", "c"], crashed=""),
            hears("Values", STREAM, 7, [[2, 0, 4, items("d")], [3, 0, [4], [4], "gone", [[4, -1]]]], 0),
            hears("Values", STREAM, 9, [[1, 1, [[4, -1], [6, 1]]]], 0),
            do("epoch", of="orders"),
            gives("orders", time=4, items=["d"], crashed="gone"),
            CUT,
            hello(),
            hears(*WELCOME[:2], 2, "space-1", 5, 0, WELCOME[6], {}),
            says("Open", STREAM, {**SUBSCRIBED, "as_of": [6]}, *CREDIT),
            hears("Values", STREAM, 0, [[0, 0, [], [4]], [0, 1, [6], [4]]], 0),
            hears("Values", STREAM, 2, [[2, 1, 6, items("e")], [1, 1, [[6, -1]]]], 0),
            do("epoch", of="orders"),
            gives("orders", time=6, items=["e"], crashed=""),
            do("epoch", of="orders"),
            gives("orders", end=True),
            says("Abort", STREAM, free("reason"), free("answer")),
            *END,
        ],
        recorded=False,
    ),
]
"""Sessions with packets that a daemon seldom sends, or only after much."""

SCRIPTS: Final = [*RECORDED, *MADE]
