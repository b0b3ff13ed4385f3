"""What a transcript of ``dataspace rule`` (``tests/transcripts/commands/rule.txt``) would not show."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dataspace
from dataspace import Record
from tests.server.cli.test_command import Running, run
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

REACH = "reach($x, $y) <- road($x, $y). reach($x, $z) <- reach($x, $y), road($y, $z)."


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = DaemonProcess(tmp_path_factory.mktemp("daemon") / "data")
    process.start()
    run(process.url, "assert", "--durable", "map", 'road("a", "b")', 'road("b", "c")')
    assert run(process.url, "rule", "add", "reach", REACH, "--durable", "map").returncode == 0
    yield process.url
    assert process.stop() == 0


def said(url: str, *words: str) -> str:
    done = run(url, "rule", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(url: str, *words: str) -> str:
    done = run(url, "rule", *words)
    assert done.returncode == 2 and done.stdout == ""
    return done.stderr


def test_a_rule_is_held_until_the_command_ends_and_takes_its_facts_along(url: str) -> None:
    with Running(url, "rule", "add", "back", "back($y, $x) <- road($x, $y).") as command:
        assert command.error_line() == "added rule back\n"
        with Running(url, "observe", "back($x, $y)", "--count", "4") as watching:
            came = [watching.line().split(" ", 1)[1] for _ in range(2)]
            assert sorted(came) == ['+ x="b" y="a"\n', '+ x="c" y="b"\n']
            assert command.end(signal.SIGTERM) == (0, "", "")
            gone = [watching.line().split(" ", 2)[:2] for _ in range(2)]
            assert gone[0] == gone[1] and gone[0][1] == "-", "in one epoch"


def test_what_is_wrong_with_a_text_is_shown_at_its_place(url: str) -> None:
    complaint = refused(url, "add", "bad", "near($town, $from) <- road($form, $town).")
    assert "unsafe rule: $from in the head is bound by no positive part of the body: did you mean $form?" in (
        complaint
    )
    line, caret = complaint.splitlines()[-2:]
    assert line[caret.index("^") :].startswith("$from")
    assert "did you" not in refused(url, "add", "bad", "p($x) <- ")


def test_a_cycle_through_what_blocks_is_refused_with_the_whole_cycle(url: str) -> None:
    complaint = refused(url, "add", "bad", "p($x) <- road($x, _), not q($x). q($x) <- p($x).")
    assert "bad is not carried out: " in complaint and "break it with next" in complaint
    assert "bad" not in said(url, "list"), "and is not left behind"


def rows(url: str, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(url, *words, "--json").splitlines()]


def test_answers_are_there_for_programs(url: str) -> None:
    road, reach = ({"@": label, "fields": ["a", "b"]} for label in ("road", "reach"))
    first = "reach($x, $y) <- road($x, $y)."
    assert rows(url, "why", 'reach("a", "b")') == [
        {"depth": 0, "fact": reach, "by": first},
        {"depth": 1, "fact": road, "by": "claimed", "owners": ["durable:map"]},
    ]
    assert rows(url, "why", 'reach("b", "a")') == []
    assert rows(url, "why-not", 'reach("a", "b")') == [{"there": reach}]
    claimed = [{"depth": 0, "fact": road, "by": "claimed", "owners": ["durable:map"]}]
    for pattern in ('road("a", _)', 'road($x, "b")', "road(_, _)", 'road("a", "b")', 'road("a")'):
        assert [row["fact"] for row in rows(url, "why", pattern)] == [road], pattern
        assert rows(url, "why", pattern) == claimed
    assert rows(url, "why", 'road("b", "a")') == rows(url, "why", 'road(_, "a")') == []
    lacking = rows(url, "why-not", 'reach("b", "a")')
    assert [row["lacks"].split("  ")[0] for row in lacking] == [
        "no match of road($x, $y)",
        "no match of road($y, $z)",
    ]
    assert {"rule": first, "monotone": True, "because": []} in rows(url, "monotone")
    explained = rows(url, "explain")
    assert {"stratum": 0, "relation": "reach", "cycle": False, "rows": 3}.items() <= next(
        row for row in explained if row.get("relation") == "reach"
    ).items()
    assert next(row for row in explained if row.get("rule") == first)["orders"] == [
        "road($x, $y) -> reach($x, $y)"
    ]


def test_a_file_can_be_given(url: str, tmp_path: Path) -> None:
    (tmp_path / "two.rules").write_text("two($x) <- reach($x, $y), reach($y, _).\n", encoding="utf-8")
    done = run(url, "rule", "add", "two", f"@{tmp_path / 'two.rules'}", "--durable", "file")
    assert done.returncode == 0
    assert said(url, "why", 'two("a")').startswith('two("a")    by two($x)')
    assert "no such file" in refused(url, "add", "two", f"@{tmp_path / 'none.rules'}").lower()


def test_a_rule_that_raises_is_listed_as_suspended(url: str) -> None:
    text = "ratio($x, 1 / $n) <- measured($x, $n)."
    assert run(url, "rule", "add", "ratio", text, "--durable", "ratio").returncode == 0
    run(url, "assert", "--durable", "ratio", "measured(1, 0)")
    assert "    suspended: ZeroDivisionError: division by zero" in said(url, "list")


def test_what_others_wrote_controls_no_terminal(url: str) -> None:
    fact = r'rule("\u001b[2J\u202e", "p($x) <-\n \u001b[31m")'
    assert run(url, "assert", "--durable", "rogue", fact).returncode == 0
    for words in (["list"], ["list", "--json"]):
        shown = said(url, *words)
        assert shown.replace("\n", "").isprintable(), shown
    assert r"\u001b[2J\u202e:" in said(url, "list")


def status(url: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(url, "status", "--json").stdout)
    return told


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[str]:
    """A daemon whose rules may derive little."""
    (tmp_path / "narrow.toml").write_text("[limits]\nderived_per_turn = 500\n", encoding="utf-8")
    process = DaemonProcess(tmp_path / "data", "--config", str(tmp_path / "narrow.toml"))
    process.start()
    yield process.url
    assert process.stop() == 0


def test_a_suspended_rule_is_seen_and_resumes_by_itself_or_when_it_is_asked_to(narrow: str) -> None:
    url = narrow
    rule, wide = "twice($x * 2) <- once($x).", "pairs($x, $y, $z) <- many($x), many($y), many($z)."
    with (
        Running(url, "rule", "add", "twice", rule) as first,
        Running(url, "rule", "add", "wide", wide) as other,
    ):
        assert (first.error_line(), other.error_line()) == ("added rule twice\n", "added rule wide\n")
        many = [f"many({n})" for n in range(10)]
        assert run(url, "assert", "--durable", "bad", 'once("a")', "once(1)", *many).returncode == 0
        assert (status(url)["rules"], status(url)["rules_suspended"]) == (0, 2)
        assert "0, 2 suspended" in run(url, "status").stdout
        with Running(
            url, "observe", "suspended($space, $name, $why)", "--space", "system", "--json"
        ) as watch:
            names = sorted(json.loads(watch.line())["captures"]["name"] for _ in range(2))
            assert names == ["twice", "wide"]
            again = refused(url, "add", "twice", rule)
            assert "twice is not carried out" in again and """cannot calculate "a" * 2: a text""" in again
            assert run(url, "retract", "--durable", "bad", 'once("a")').returncode == 0
            gone = json.loads(watch.line())
            assert (gone["change"], gone["captures"]["name"]) == ("-", "twice")
        tried = run(url, "rule", "resume", "wide")
        assert tried.returncode == 1 and "wide is suspended again: " in tried.stderr
        assert run(url, "retract", "--durable", "bad", *many[5:]).returncode == 0
        assert status(url)["rules_suspended"] == 1
        with Running(url, "rule", "add", "wide", wide) as added:
            assert added.error_line() == "added rule wide\n"
            told = status(url)
            assert (told["rule_texts"], told["rules"], told["rules_suspended"]) == (2, 2, 0)
            with Running(
                url, "rule", "add", "more", "one($x) <- p($x). one($x) <- q($x). two($x) <- r($x)."
            ) as more:
                assert more.error_line() == "added rule more\n"
                assert "\nrules      3 with 5 clauses, 0 suspended; " in run(url, "status").stdout
                told = status(url)
                assert (told["rule_texts"], told["rules"]) == (3, 5)
            assert told["costliest_rule"] in ("twice", "wide")
        tried = run(url, "rule", "resume", "wide")
        assert tried.returncode == 1 and "no rule 'wide' is suspended in space 'main'" in tried.stderr
        assert run(url, "retract", "--durable", "bad", "once(1)", *many[:5]).returncode == 0


def test_a_rule_over_time_says_since_when_and_how_long_still(url: str) -> None:
    text = "old($x) <- (road($x, _)) for 1 h. fresh($x) <- road($x, _) at $t, now < $t + 3600."
    assert run(url, "rule", "add", "old", text, "--durable", "times").returncode == 0
    shown = said(url, "why-not", 'old("a")').splitlines()
    assert shown[0] == "old($x) <- (road($x, _)) for 1 h."
    assert re.search(
        r'^ +\(road\("a", _\)\) for 1 h: held since \S+Z, not yet: in (60.0|59.\d) min \(', shown[1]
    )
    (row,) = rows(url, "why-not", 'old("a")')
    assert {"rule", "lacks", "due"} == row.keys()
    proof = rows(url, "why", 'fresh("a")')
    assert proof[1]["literal"].startswith("now < (@") and {"since", "until"} <= proof[1].keys()


def test_a_rule_of_an_owner_is_found_whatever_client_asserted_it(url: str) -> None:
    """Over HTTP, or from a program, the claim has another handle than the command would choose."""
    remove = ("rule", "remove", "page-two", "--durable", "pages")
    with dataspace.connect_blocking(url, owner="pages") as space:
        for name in ("page-one", "page-two"):
            space.assert_(Record("rule", name, "page($x) <- road($x, _)."))
    assert run(url, "rule", "remove", "page-one", "--durable", "pages").stderr == "removed rule page-one\n"
    text = "zwei($x) <- road($x, _)."
    assert run(url, "rule", "add", "page-two", text, "--durable", "pages").returncode == 0
    with dataspace.connect_blocking(url) as space:
        found = space.matches("rule($name:str, $text:str)")
    assert [row for row in found if str(row[0]).startswith("page-")] == [("page-two", text)]
    assert run(url, *remove).returncode == 0
    assert "pages has added no rule page-two" in run(url, *remove).stderr
