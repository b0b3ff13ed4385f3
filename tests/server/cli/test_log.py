"""``dataspace log verify | compact | export`` tell what is in a log's files, with and without a daemon."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import dataspace
from dataspace.client.bulk.client import BulkClient
from index.values.values import Record
from server.cli.main import main
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a daemon left in which five facts were asserted, each in a turn."""
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    _publish(daemon, 1, 5)
    daemon.stop()
    return daemon.data


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A daemon with three epochs, and the time of each."""
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    times = []
    for number in (1, 2, 3):
        _publish(daemon, number, number)
        times.append(datetime.now(UTC).isoformat())
        time.sleep(0.002)
    yield daemon.url, times
    daemon.stop()


def test_the_past_is_read_from_a_time_on(
    timed: tuple[str, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    url, times = timed

    def numbers(*words: str) -> list[str]:
        assert main([*words, "on($n)", "--url", url]) == 0
        return re.findall(r"n=(\d)", capfd.readouterr().out)

    for command in (["log"], ["observe", "--until", "3"]):
        assert numbers(*command, "--since", "1h") == ["1", "2", "3"]
        assert numbers(*command, "--since", times[0]) == ["2", "3"]
        assert numbers(*command, "--since", "2020-01-01") == ["1", "2", "3"]
    assert numbers("log", "--since", "0s") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "soon"], "'soon' is neither a duration nor a time"),
        (["--since", "2999-01-01"], "has not come yet"),
        (["--since", "1h", "--from", "3"], "not allowed with"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(
    timed: tuple[str, list[str]], capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    try:
        code = main(["log", "on($n)", *words, "--url", timed[0]])
    except SystemExit as end:
        code = int(str(end.code))
    assert code != 0 and said in capsys.readouterr().err


def _publish(daemon: DaemonProcess, first: int, last: int) -> None:
    with BulkClient(daemon.url) as link:
        for number in range(first, last + 1):
            link.stage(("k",), [("assert", Record("on", number))])
            link.publish([("k",)], client="c", sequence=number, owner="o")


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main(["log", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_verify_a_whole_log(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", "--data", data)
    assert code == 0
    assert "epochs 1 to 5: 5 changes in 5 segments" in out
    assert "every checksum holds, and nothing that was acknowledged is missing" in out


def test_verify_beside_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    daemon.start()
    _publish(daemon, 1, 3)
    code, out, _ = run(capsys, "verify", "--data", daemon.data, "--json")
    told = json.loads(out)
    assert (code, told["last"], told["damages"]) == (0, 3, [])
    _publish(daemon, 4, 4)
    assert run(capsys, "compact", "--data", daemon.data)[0] == 1, "the daemon holds it"
    daemon.stop()


def test_verify_finds_all_damages(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "log.sqlite"
    whole = bytearray(path.read_bytes())
    for number in (2, 4):
        at = whole.index(b"\x91\x92\xa2on" + bytes([number]))
        whole[at + 5] ^= 64
    path.write_bytes(whole)
    code, out, _ = run(capsys, "verify", "--data", data)
    assert code == 1
    damaged = [line for line in out.splitlines() if line.startswith("DAMAGED")]
    assert [line.split(": ")[2] for line in damaged] == [
        "segment 2 with epochs 2 to 2 was altered",
        "segment 4 with epochs 4 to 4 was altered",
    ]


def test_verify_looks_at_durable_topics_too(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(data)
    daemon.start()
    with dataspace.connect_blocking(daemon.url) as space, space.publish("t", durable=True) as topic:
        for number in range(5):
            topic.send(f"item-{number}")
            topic.advance(number + 1)
        topic.flush()
        code, out, _ = run(capsys, "verify", "--data", data)
        assert code == 0 and "durable topics: 1 with 5 completed epochs in 11 steps" in out, (
            "beside the daemon"
        )
    daemon.stop()
    path = data / "topics.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"item-3", b"item-8"))
    code, out, _ = run(capsys, "verify", "--data", data)
    assert code == 1
    (said,) = [line for line in out.splitlines() if line.startswith("DAMAGED")]
    assert re.fullmatch(rf"DAMAGED: {path}: segment \d of slot 1 with steps \d+ to \d+ was altered", said)
    assert json.loads(run(capsys, "verify", "--data", data, "--json")[1])["topics"] == {
        "topics": 1,
        "steps": 12,
        "epochs": 5,
    }
    path.write_bytes(whole[: len(whole) // 2])
    assert run(capsys, "verify", "--data", data)[0] == 1


def test_compact_gives_back_the_room_of_topics(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = DaemonProcess(data)
    daemon.start()
    with dataspace.connect_blocking(daemon.url) as space:
        for name in ("gone", "kept"):
            with space.publish(name, durable=True) as topic:
                for number in range(40):
                    topic.send(f"{name} {number} " + "x" * 5_000)
                topic.flush()
    assert main(["topic", "end", "gone", "--url", daemon.url]) == 0
    daemon.stop()
    before = (data / "topics.sqlite").stat().st_size
    code, out, _ = run(capsys, "compact", "--data", data)
    assert code == 0 and "durable topics in " in out
    assert (data / "topics.sqlite").stat().st_size < before * 0.7
    assert "durable topics: 1 with 1 completed epochs in 42 steps" in run(capsys, "verify", "--data", data)[1]


def test_compact(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compact", "--data", data)
    assert (code, out.split(" are now ")[1].split(" in ")[0]) == (0, "1")
    code, out, _ = run(capsys, "compact", "--data", data, "--keep-for", "0s")
    assert code == 0
    assert "epochs 5 to 5" not in out
    assert "epochs " in run(capsys, "verify", "--data", data)[1]


def test_export(data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "on.jsonl"
    code, _, err = run(capsys, "export", "on($n)", "--data", data, "--from", "3", "--output", target)
    assert (code, err) == (0, "exported 3 changes\n")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(line["epoch"], line["change"], line["captures"]) for line in lines] == [
        (number, "+", {"n": number}) for number in (3, 4, 5)
    ]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "verify", "--data", tmp_path / "nowhere")
    assert code == 2 and "there is no log in" in err
