"""Secrets and narrowed tokens are made on the command line, without a daemon, and are what they should be."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dataspace.codec import unpack
from dataspace.transport.tokens import Token
from index.values.values import Map
from server.cli.main import main

SECRET = "the secret of the admin"


def test_a_secret_is_long_and_new_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "new"]) == main(["token", "new"]) == 0
    first, second = capsys.readouterr().out.split()
    assert len(first) >= 40 and first != second


def test_a_token_is_narrowed_by_what_the_options_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    words = ["--observe", "reading(_)", "--observe", "room(_)", "--space", "main", "--for", "1h", "--inspect"]
    assert main(["token", "narrow", "--token-file", str(file), *words]) == 0
    shown = Token.read(capsys.readouterr().out.strip())
    assert shown.is_sealed_by(SECRET)
    (packed,) = shown.caveats
    caveat = unpack(packed)
    assert isinstance(caveat, Map)
    assert dict(caveat.pairs()) | {"until": None} == {
        "observe": ("reading(_)", "room(_)"),
        "spaces": ("main",),
        "inspect": True,
        "until": None,
    }
    until = caveat["until"]
    assert isinstance(until, datetime) and 3500 < (until - datetime.now(UTC)).total_seconds() <= 3600


def test_a_token_is_narrowed_by_what_is_denied_and_stamped(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--deny-assert",
        "secret(_)",
        "--deny-observe",
        "p(_)",
        "--stamp",
        "by=sensor-7",
        "--name",
        "seven",
    ]
    assert main(["token", "narrow", "--token", SECRET, *words]) == 0
    (packed,) = Token.read(capsys.readouterr().out.strip()).caveats
    assert unpack(packed) == Map(
        {
            "deny": Map({"assert": ("secret(_)",), "observe": ("p(_)",)}),
            "stamp": Map({"by": "sensor-7"}),
            "name": "seven",
        }
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no restriction"),
        (["--observe", "reading($x)"], "captures, write _"),
        (["--for", "ever"], "'ever' is no duration"),
        (["--deny-observe", "reading($x)"], "captures, write _"),
        (["--stamp", "sensor-7"], "a stamp is NAME=WORD"),
        (["--stamp", "by=a b"], "a name or a stamp is 1 to 64"),
        (["--name", "a/b"], "a name or a stamp is 1 to 64"),
    ],
)
def test_what_makes_no_sense_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "narrow", "--token", SECRET, *words]) == 2
    told = capsys.readouterr().err
    assert said in told and SECRET not in told


def test_a_token_is_needed_to_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATASPACE_TOKEN", raising=False)
    monkeypatch.delenv("DATASPACE_TOKEN_FILE", raising=False)
    assert main(["token", "narrow", "--inspect"]) == 2
    assert "no token; give" in capsys.readouterr().err
