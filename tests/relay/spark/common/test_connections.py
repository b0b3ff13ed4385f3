"""Links outlive tasks while they are in good order, and a daemon may be away for a while, not for ever."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from typing import ClassVar

import pytest

from dataspace.errors import Broken, DataspaceError, ProtocolError, Refused, Unreachable
from relay.spark.common import connections
from relay.spark.common.connections import DaemonPeer, RetryPatience, asked, close_all, lent
from relay.spark.common.options import sink_options
from relay.spark.sink.sink import FORGETTING, Handed, StagedBatch, discard

A, B = DaemonPeer("tcp://a:1"), DaemonPeer("tcp://b:1")


class Wire:
    """A link to nowhere that knows how often it was made, and whether anybody is there."""

    made: ClassVar[int] = 0
    absent: ClassVar[int] = 0

    def __init__(self, url: str, **_said: object) -> None:
        if Wire.absent:
            Wire.absent -= 1
            raise Unreachable(f"nobody at {url}")
        Wire.made += 1
        self.number = Wire.made
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Clock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    connections.close_all()  # those of other tests are real
    monkeypatch.setattr(connections, "BulkClient", Wire)
    monkeypatch.setattr(connections, "time", made)
    Wire.made = Wire.absent = 0
    yield made
    connections._idle.clear()


def number(link: object) -> int:
    assert isinstance(link, Wire)
    return link.number


def test_a_link_in_good_order_is_lent_again() -> None:
    assert [asked(A, 1.0, number) for _ in range(3)] == [1, 1, 1]
    assert asked(B, 1.0, number) == 2


def test_a_link_that_failed_or_was_left_early_is_closed() -> None:
    with pytest.raises(Refused), lent(A) as link:
        raise Refused("no", "no")
    assert link.closed
    assert asked(A, 1.0, number) == 2


def test_two_users_have_two_links() -> None:
    with lent(A) as one, lent(A) as other:
        assert one is not other


def test_a_forked_child_does_not_speak_over_its_parents_link(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(A, 1.0, number) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert asked(A, 1.0, number) == 2


def test_all_links_are_closed_when_the_process_has_done() -> None:
    with lent(B) as idle:
        pass
    with lent(A) as link:
        close_all()
        assert link.closed and idle.closed
    assert asked(A, 1.0, number) == 3


def test_a_kept_link_that_broke_is_replaced_at_once(clock: Clock) -> None:
    broken = [True]

    def question(link: object) -> int:
        if broken.pop() if broken else False:
            raise Broken("gone")
        return number(link)

    assert asked(A, 1.0, question) == 2
    assert clock.pauses == []


def test_a_daemon_that_comes_back_in_time_is_waited_for_with_growing_pauses(clock: Clock) -> None:
    Wire.absent = 8
    assert asked(A, 30.0, number) == 1
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_daemon_that_stays_away_is_an_error_that_names_the_bound(clock: Clock) -> None:
    Wire.absent = 1000
    with pytest.raises(Unreachable, match=r"nobody at tcp://a:1; waited 5 s for it \(connectTimeout\)"):
        asked(A, 5.0, number)
    assert 4.0 <= clock.now <= 5.0


def test_the_time_starts_anew_when_the_daemon_has_answered(clock: Clock) -> None:
    patience = RetryPatience(2.0)
    for _ in range(5):
        patience.spent(Broken("gone"))
        patience.spent(Broken("gone"))
        patience.answered()
    assert clock.now > 0.2


def test_a_refusal_is_not_tried_again() -> None:
    tries = []

    def question(link: object) -> None:
        tries.append(link)
        raise Refused("epoch-gone", "no")

    with pytest.raises(Refused):
        asked(A, 30.0, question)
    assert len(tries) == 1


def test_a_daemon_that_is_away_is_hardly_waited_for_if_it_is_only_to_forget(clock: Clock) -> None:
    Wire.absent = 1000
    options = sink_options({"url": A.url, "label": "p", "connectTimeout": "10m"})
    discard(options, [Handed(StagedBatch("query", 0, "run"))])
    assert clock.now <= FORGETTING


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def link(_url: str, **_said: object) -> Wire:
        raise error

    monkeypatch.setattr(connections, "BulkClient", link)


def caused(error: DataspaceError, cause: Exception) -> DataspaceError:
    error.__cause__ = cause
    return error


def verification() -> ssl.SSLError:
    error = ssl.SSLCertVerificationError(1, "self-signed certificate")
    error.reason = "CERTIFICATE_VERIFY_FAILED"
    return error


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    "cause",
    [
        verification(),
        alert("WRONG_VERSION_NUMBER"),
        alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        alert("TLSV1_ALERT_UNKNOWN_CA"),
    ],
)
@pytest.mark.parametrize("kind", [Unreachable, Broken])
def test_what_waiting_does_not_cure_is_not_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, cause: Exception, kind: type[DataspaceError]
) -> None:
    failing(monkeypatch, caused(kind("no TLS"), cause))
    with pytest.raises(kind, match=r"no TLS.*tlsCa"):
        asked(A, 30.0, number)
    assert clock.now == 0


@pytest.mark.parametrize(
    "cause", [ssl.SSLEOFError(8, "EOF"), ConnectionRefusedError(), alert("HTTP_REQUEST")]
)
def test_a_daemon_that_goes_away_while_it_shakes_hands_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    failing(monkeypatch, caused(Unreachable("no TLS"), cause))
    with pytest.raises(Unreachable, match="waited 30 s"):
        asked(A, 30.0, number)
    assert clock.now > 15


@pytest.mark.parametrize(("token", "said"), [("", r"\.option\(\"token"), ("t", "option token, tokenFile")])
def test_a_daemon_that_wants_a_token_is_told_in_the_words_of_options(
    monkeypatch: pytest.MonkeyPatch, token: str, said: str
) -> None:
    failing(monkeypatch, ProtocolError("unauthorized", "this daemon wants a token: connect(token=…)"))
    with pytest.raises(ProtocolError, match=said) as caught:
        asked(DaemonPeer("tcp://a:1", token), 1.0, number)
    assert ("connect(" in str(caught.value)) == bool(token)
    assert caught.value.code == "unauthorized"
