"""Groups at a shell: consume runs a command for each job, groups shows, pauses, moves and deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import dataspace
from dataspace import BlockingSpace, Record
from server.cli.main import main
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def space(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingSpace]:
    monkeypatch.setenv("DATASPACE_URL", daemon.url)
    with dataspace.connect_blocking(daemon.url) as connected:
        for number in range(3):
            connected.assert_(Record("job", number, "x"))
        yield connected


def printed(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints, in this process."""
    assert main(list(words)) == code
    return capfd.readouterr().out


def test_a_command_does_jobs_and_its_output_becomes_their_results(
    space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    command = 'cat >&2; echo "result($DATASPACE_CAPTURE_id)"'
    consume = ("consume", "job($id, $)", "--group", "w", "--start", "held", "--exec", command)
    printed(capfd, *consume, "--results", "results", "--count", "3")
    assert sorted(space.matches("result($)")) == [(0,), (1,), (2,)]
    (listed,) = [json.loads(line) for line in printed(capfd, "groups", "--json").splitlines()]
    assert (listed["group"], listed["undone"], listed["counts"]["done"]) == ("w", 0, 3)
    assert printed(capfd, "groups").splitlines()[1].split()[:5] == ["w", "0", "0", "0", "0"]


def test_a_command_that_fails_gives_its_job_back(
    space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    consume = ("consume", "job($id, $)", "--group", "w", "--start", "held", "--count", "1", "--attempts", "1")
    printed(capfd, *consume, "--exec", "exit 75", code=1)
    assert space.matches("dead($, $, $, $, $, $)") == []
    printed(capfd, *consume, "--exec", "exit 3", code=1)
    assert [row[-2:] for row in space.matches("dead($, $, $, $, $, $)")] == [("status 3", 1)]
    with space.consume(group="w", in_flight=3) as jobs:
        printed(capfd, "groups", "retry", "w", 'job(_, "none")')
        assert len(space.matches("dead(_, _, _, $, _, _)")) == 1
        printed(capfd, "groups", "retry", "w", "job(0, _)")
        assert sorted((each["id"], each.attempt) for _, each in zip(range(3), jobs, strict=False)) == [
            (0, 1),
            (1, 1),
            (2, 1),
        ]
    assert space.matches("dead(_, _, _, $, _, _)") == []


def test_commands_for_jobs_of_one_key_run_one_after_the_other(
    space: BlockingSpace, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in range(4):
        space.assert_(Record("ev", "a", number))
    lines = tmp_path / "lines"
    command = f'N=$DATASPACE_CAPTURE_n; echo b$N >>{lines}; [ "$N" != 0 ] || sleep 0.3; echo e$N >>{lines}'
    consume = ("consume", "ev($k, $n)", "--key", "k", "--group", "w", "--start", "1", "--in-flight", "4")
    printed(capfd, *consume, "--count", "4", "--exec", command)
    assert lines.read_text().split() == [f"{what}{n}" for n in range(4) for what in "be"]


def test_a_list_shows_one_group_and_a_retry_says_that_there_was_nothing(
    space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    consume = (
        "consume",
        "job($id, $)",
        "--start",
        "held",
        "--count",
        "1",
        "--attempts",
        "1",
        "--exec",
        "exit 3",
    )
    for group in "vw":
        printed(capfd, *consume, "--group", group, code=1)
    assert [line.split()[0] for line in printed(capfd, "groups", "list", "w").splitlines()] == ["group", "w"]
    assert "no group 'x'" in printed_error(capfd, "groups", "list", "x")
    said = []
    for words in (["job(7, _)"], ["job(0, _)"], []):
        assert main(["groups", "retry", "w", *words]) == 0
        said.append(capfd.readouterr().err)
    assert said == [
        "group w: no dead letter matches job(7, _)\n",
        "group w: 1 dead letter is tried again\n",
        "group w: there are no dead letters\n",
    ]


def test_a_group_is_paused_moved_and_deleted(space: BlockingSpace, capfd: pytest.CaptureFixture[str]) -> None:
    with space.consume("job($id, $)", group="w", start="held", in_flight=3) as jobs:
        taken = [next(iter(jobs)) for _ in range(3)]
        out = printed(capfd, "groups", "out", "w").splitlines()
        assert len(out) == 4 and all(
            " session:" in line and "(" not in line.split("job(")[0] for line in out[1:]
        )
        with space.turn(done=taken[:2]):
            pass
    printed(capfd, "groups", "pause", "w")
    assert printed(capfd, "groups").splitlines()[1].split()[7] == "paused"
    printed(capfd, "groups", "resume", "w")
    printed(capfd, "groups", "alter", "w", "--ack-within", "2m", "--attempts", "7")
    (listed,) = [json.loads(line) for line in printed(capfd, "groups", "--json").splitlines()]
    assert (listed["options"]["ack_within"], listed["options"]["attempts"]) == (120, 7)
    printed(capfd, "groups", "seek", "w", "1")
    with space.consume(group="w", in_flight=3) as jobs:
        assert [next(iter(jobs))["id"] for _ in range(3)] == [0, 1, 2]
    printed(capfd, "groups", "delete", "w")
    assert space.matches("group($, _, _)") == []
    assert printed(capfd, "groups").splitlines()[1:] == []


def test_a_command_does_the_items_of_a_topic(space: BlockingSpace, capfd: pytest.CaptureFixture[str]) -> None:
    with space.publish("t", durable=True) as publication:
        publication.send({"n": 1}, Record("job", 2))
    consume = ("consume", "--topic", "t", "--group", "w", "--start", "1")
    command = 'cat >&2; echo "result(\\"$DATASPACE_JOB\\")"'
    printed(capfd, *consume, "--count", "2", "--exec", command, "--results", "results")
    assert sorted(space.matches("result($)")) == [("1.0",), ("1.1",)]
    only = ("consume", "job($id)", "--topic", "t", "--group", "some", "--start", "1", "--count", "1")
    assert "2" in printed(capfd, *only)
    assert "a topic has none" in printed_error(capfd, *consume[:-1], "held")
    space.end_topic("t")
    assert {line.split("  ")[-2].strip() for line in printed(capfd, "groups").splitlines()[1:]} == {
        "topic ended"
    }


def printed_error(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that fails prints."""
    assert main(list(words)) != 0
    return capfd.readouterr().err


def test_a_peek_shows_what_waits_and_further_options_are_options_of_commands(
    space: BlockingSpace, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--most-out", "2", "--backoff", "1s,1h", "--rate", "100", "--exclusive", "--priority", "id"]
    consume = ("consume", "job($id, $)", "--group", "w", "--start", "held", "--key", "id", "--kinds", "+-!")
    printed(capfd, *consume, *options, "--count", "1", "--exec", "exit 1", code=1)
    shown = printed(capfd, "groups", "peek", "w", "--most", "2").splitlines()
    assert [line.split()[1] for line in shown[1:]] == ["waiting", "waiting"], "job 2 came first"
    (listed,) = [json.loads(line) for line in printed(capfd, "groups", "peek", "w", "--json").splitlines()]
    assert [job["state"] for job in listed["jobs"]] == ["waiting", "waiting", "postponed"]
    found = {name: listed["options"][name] for name in ("most_out", "rate", "exclusive", "priority", "kinds")}
    assert found == {"most_out": 2, "rate": 100.0, "exclusive": True, "priority": "id", "kinds": "+-!"}
    assert listed["options"]["backoffs"] == [1.0, 3600.0]
    changed = ("--most-out", "0", "--backoff", "5s", "--rate", "0.5", "--no-exclusive")
    printed(capfd, "groups", "alter", "w", *changed)
    (listed,) = [json.loads(line) for line in printed(capfd, "groups", "--json").splitlines()]
    assert "most_out" not in listed["options"] and listed["options"]["backoff"] == 5.0
    assert "exclusive" not in listed["options"]
    assert "endings need a key" in printed_error(capfd, "consume", "x($a)", "--group", "x", "--kinds=-")
