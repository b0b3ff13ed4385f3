"""A command that expects something does all or nothing: exit code 4, and what was found on standard error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dataspace
from dataspace import BlockingSpace
from tests.server.cli.test_command import Running, run
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def space(daemon: DaemonProcess) -> Iterator[BlockingSpace]:
    with dataspace.connect_blocking(daemon.url) as connected:
        yield connected


def refused(url: str, *words: str, found: str) -> None:
    """Runs a command, which must do nothing and print what was found to standard error alone."""
    ended = run(url, *words)
    assert (ended.returncode, ended.stdout) == (4, ""), ended
    first, _, rest = ended.stderr.partition("\n")
    assert first.startswith("dataspace: nothing was done: expected ") and rest == found, ended.stderr


def done(url: str, *words: str) -> int:
    """Runs a command that does something; returns its epoch."""
    ended = run(url, *words)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stderr.rsplit(None, 1)[1])


def test_put_sets_a_value_that_is_still_the_old_one(daemon: DaemonProcess, space: BlockingSpace) -> None:
    url, to_eight = daemon.url, ("put", 'config("speed", 8)', "--durable", "ops")
    first = done(url, "put", 'config("speed", 7)', "--durable", "ops")
    done(url, *to_eight, "--expect", 'config("speed", 7)')
    refused(url, *to_eight, "--expect", 'config("speed", 7)', found='there is config("speed", 8)\n')
    refused(url, *to_eight, "--absent", 'config("speed", $v)', found="found 8\n")
    refused(url, *to_eight, "--absent", 'config("speed", _)', found='found config("speed", 8)\n')
    since = ("--unchanged-since", str(first))
    refused(url, *to_eight, *since, found='found config("speed", 8)\nfound config("speed", 7)\n')
    done(url, "put", 'config("speed", 9)', "--durable", "ops", "--unchanged-since", str(first + 1))
    several = ("--expect", 'config("speed", 9)', "--expect", 'config("mode", _)', "--absent", "off(_)")
    refused(url, *to_eight, *several, found='there is config("speed", 9)\n')
    assert space.matches('config("speed", $v)') == [(9,)]


def test_assert_retract_and_send_do_the_same(daemon: DaemonProcess, space: BlockingSpace) -> None:
    url, durable = daemon.url, ("--durable", "ops")
    with space.observe("go($n)", snapshot=False) as going:
        lead = done(url, "assert", 'leader("me")', *durable, "--absent", "leader(_)")
        refused(url, "assert", 'leader("you")', *durable, "--absent", "leader($who)", found='found "me"\n')
        refused(url, "assert", 'leader("you")', "--absent", "leader($who)", found='found "me"\n')
        with Running(url, "assert", "follower(1)", "--expect", 'leader("me")') as follower:
            assert "asserted 1 fact" in follower.error_line()
        refused(url, "send", "go(1)", "--expect", 'leader("you")', found="")
        done(url, "send", "go(2)", "--expect", 'leader("me")', "--absent", 'leader("you")')
        assert next(iter(going)).captures == (2,)
        gone = ("retract", "leader(_)", *durable)
        refused(url, *gone, "--expect", 'leader("you")', found="")
        refused(url, *gone, "--unchanged-since", str(lead - 1), found='found leader("me")\n')
        done(url, *gone, "--unchanged-since", str(lead), "--expect", 'leader("me")')
        assert space.matches("leader($who)") == []
        done(url, "assert", "named(1)", *durable)
        refused(url, "retract", "named(1)", *durable, "--absent", "named($n)", found="found 1\n")
        done(url, "retract", "named(1)", *durable, "--expect", "named(1)")
    assert space.matches("named($n)") == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("put", "a(1, 2)", "--durable", "o", "--expect", "a($x)"), "write _ for $NAME"),
        (("put", "a(1, 2)", "--durable", "o", "--expect", "a("), "expected"),
        (("put", "a(1, 2)", "--durable", "o", "--unchanged-since", "x"), "'x' is no epoch"),
        (("send", "-", "--expect", "a(1)"), "need messages, not -"),
        (("send", "a(1)", "--unchanged-since", "1"), "--unchanged-since"),
        (("observe", "a(_)", "--expect", "a(1)"), "--expect"),
    ],
)
def test_an_option_that_means_nothing_is_an_error(
    daemon: DaemonProcess, words: tuple[str, ...], text: str
) -> None:
    ended = run(daemon.url, *words)
    assert ended.returncode == 2 and text in ended.stderr, ended


def test_at_the_prompt_an_expectation_that_does_not_hold_ends_a_script(daemon: DaemonProcess) -> None:
    script = (
        "put rate(1, 2) --owner b\nput rate(1, 3) --owner b --expect rate(1, 5)\nput rate(1, 4) --owner b\n"
    )
    ended = run(daemon.url, "shell", said=script)
    assert ended.returncode == 1 and "there is rate(1, 2)" in ended.stderr and "line 2" in ended.stderr
    assert run(daemon.url, "get", "rate(1, $n)").stdout == "n=2\n"
