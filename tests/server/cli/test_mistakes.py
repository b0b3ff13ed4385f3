"""Mistakes that are made every day are named, with what was probably meant."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
import trio

from dataspace.client.bulk.client import BulkClient
from dataspace.client.session.uplink import open_link
from dataspace.errors import Unreachable, UsageError
from dataspace.transport.addresses import parse_url
from dataspace.transport.credentials import Credentials
from index.patterns.text import parse as parse_value
from server.cli.parser import parse
from server.cli.values import given, parsed
from tests.server.cli.test_command import run
from tests.server.processes import DaemonProcess


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    assert process.stop() == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["observ", "a($b)"], "observe"),
        (["rule", "lst"], "list"),
        (["observe", "a($b)", "--jsn"], "--json"),
        (["observe", "a($b)", "--polcy=wait"], "--policy"),
        (["serve", "--lissten", "tcp:127.0.0.1:1"], "--listen"),
        (["topic", "subscrib", "readings"], "subscribe"),
        (["serve", "--metrics", "127.0.0.1:7379"], "--admin"),
        (["serve", "--metrics=127.0.0.1:7379"], "--admin"),
        (["serve", "--health", "127.0.0.1:7379"], "--admin"),
    ],
)
def test_a_command_or_option_that_is_none_names_the_nearest(
    capsys: pytest.CaptureFixture[str], words: list[str], meant: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(words)
    assert exit.value.code == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


def test_an_option_of_another_command_is_named_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["observe", "a($b)", "--form", "dot"])
    assert capsys.readouterr().err.endswith(
        "unrecognized arguments: --form dot; it is an option of dataspace index\n"
    )


def test_one_that_is_like_nothing_names_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["status", "--zzz"])
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("present($who)", True),
        ("f(_)", True),
        ('a([1, {"k": $x:int}])', True),
        ("$f", True),
        ("Observe(present($who))", False),
        ('present("$who")', False),
        ('a([1, {"_": 2}])', False),
    ],
)
def test_a_pattern_is_no_fact_of_a_command_line_but_one_of_the_standard_input(
    monkeypatch: pytest.MonkeyPatch, text: str, is_refused: bool
) -> None:
    if is_refused:
        with pytest.raises(UsageError, match=rf"^{re.escape(text)} is a pattern, .* input and give -$"):
            given([text])
    else:
        assert given([text]) == [parse_value(text)]
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert given(["-"]) == [parse_value(text)]


@pytest.mark.parametrize(
    "words",
    [
        ["assert", "no({})"],
        ["assert", "no({})", "--durable", "me"],
        ["send", "no({})"],
        ["put", "no({}, 1)", "--durable", "me"],
    ],
)
def test_no_command_takes_a_pattern_for_a_fact(daemon: DaemonProcess, words: list[str]) -> None:
    for capture in ("$x", "_"):
        done = run(daemon.url, *[word.format(capture) for word in words])
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("is a pattern, and a value has no $NAME or _") == 1
    assert run(daemon.url, "get", "no()").stdout == ""


@pytest.mark.parametrize("text", ["present()", "present( )", "at(1, [])", "x(_, [ ])"])
def test_a_pattern_whose_names_the_shell_has_taken_is_named(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    parsed(text)
    assert capsys.readouterr().err == (
        f"dataspace: {text} captures nothing: if you wrote $NAME within double quotes, the shell has put "
        "its own variable there; use single quotes\n"
    )


@pytest.mark.parametrize("text", ["present($who)", "present(_)", 'present("Alice")', "at($x, [])", "$"])
def test_other_patterns_are_not(capsys: pytest.CaptureFixture[str], text: str) -> None:
    parsed(text)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["log", "--from", "5", "--until", "2"], "--until 2 is before --from 5"),
        (["log", "read", "a($b)", "--from", "5", "--until", "2"], "--until 2 is before --from 5"),
        (["log", "read", "a($b)", "--from", "5", "--until", "0"], "--until 0 is before --from 5"),
        (["log", "export", "--from", "5", "--until", "2"], "--until 2 is before --from 5"),
        (["observe", "a($b)", "--from", "5", "--until", "2"], "--until 2 is before --from 5"),
        (["topic", "read", "t", "--after", "5", "--until", "2"], "--until 2 is before --after 5"),
        (["log", "read", "--from", "-1"], "'-1' is no epoch, give 0 or more"),
        (["log", "read", "--until", "x"], "'x' is no epoch, give 0 or more"),
        (["topic", "read", "t", "--until", "-3"], "'-3' is no epoch, give 0 or more"),
    ],
)
def test_a_range_of_epochs_in_which_nothing_can_be_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(words)
    assert exit.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(said)


@pytest.mark.slow
def test_times_of_a_topic_between_which_nothing_can_be_are_refused(daemon: DaemonProcess) -> None:
    shown = run(daemon.url, "topic", "subscribe", "t", "--from", "5", "--until", "2", "--wait", "0s")
    assert shown.returncode == 2
    assert "no time is at or after 5 and before 2" in shown.stderr


@pytest.mark.slow
def test_a_log_that_is_read_beyond_its_newest_epoch_says_so(daemon: DaemonProcess) -> None:
    assert run(daemon.url, "send", "n(1)").returncode == 0
    shown = run(daemon.url, "log", "n($n)", "--from", "50")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == "dataspace: nothing from epoch 50 on: the newest is 1 (--follow waits)\n"
    assert run(daemon.url, "log", "n($n)", "--from", "1").stderr == ""


async def test_a_name_that_does_not_resolve_is_said_to_be_that() -> None:
    with pytest.raises(Unreachable, match=r"\(the name does not resolve: [a-z ]+\); start one with"):
        await open_link(
            parse_url("tcp://no.such.host.invalid:1"), Credentials.complete("", None), timeout=30.0
        )
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("tcp://no.such.host.invalid:1", "the name does not resolve: [a-z ]+"),
        ("tcp://127.0.0.1:1", "connection refused"),
        ("unix:///no/such/socket", "no such file or directory"),
    ],
)
def test_a_bulk_client_says_the_same(url: str, reason: str) -> None:
    with pytest.raises(Unreachable, match=rf"no daemon at {url} \({reason}\); start one with"):
        BulkClient(url)
