"""Tests of rules say what was expected and found."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from dataspace.errors import Refused, UsageError
from server.cli.once.rule_tests import RuleTest, test as run_files

HERE = Path(__file__).parents[3]
FILES = sorted((HERE / "examples/rules").glob("*.test"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_examples_hold(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = file.with_suffix(".toml")
    given = argparse.Namespace(files=[str(file)], config=str(config) if config.exists() else None)
    assert run_files(given) == 0
    out, err = capsys.readouterr()
    assert not out and re.search(r": \d\d expectations$", err.strip())


def test_functions_of_the_host_need_a_configuration() -> None:
    file = HERE / "examples/rules/hosted.test"
    with pytest.raises(UsageError, match=r"no function math\.dist is registered here: .* --config FILE"):
        run_files(argparse.Namespace(files=[str(file)], config=None))


RULES = "hot($d) <- temp($d, $v), $v > 90.\nsend(alarm($d)) <- hot($d).\nnext(was($d)) <- hot($d).\n---\n"

FAILURES = {
    'assert temp("a", 20)\nexpect hot("a")': (
        '6: expected hot("a"), found no fact hot(…)\n'
        "    hot($d) <- temp($d, $v), $v > 90.\n"
        '        $v > 90 does not hold  with $d = "a", $v = 20'
    ),
    'assert temp("a", 95)\n\nexpect not hot(_)': (
        '7: expected not hot(_), found hot("a")\n'
        '    hot("a")    by hot($d) <- temp($d, $v), $v > 90.\n'
        '        temp("a", 95)    claimed'
    ),
    'assert temp("a", 95), temp("b", 96)\nexpect hot(_) = [hot("b"), hot("c")]': (
        '6: expected hot(_) = [hot("b"), hot("c")], found it without hot("c"), also hot("a")\n'
        "    hot($d) <- temp($d, $v), $v > 90.\n"
        '        no match of temp($d, $v)  with $d = "c"'
    ),
    'assert temp("a", 95)\nexpect sent alarm("b")': '6: expected sent alarm("b"), found alarm("a")',
    'assert temp("a", 95)\nafter 1 s\nexpect sent alarm(_)': (
        "7: expected sent alarm(_), found no message alarm(…)"
    ),
    'assert rule("r", "p(1 / $x) <- q($x)."), q(0)\nexpect not p(_)': (
        '6: r is suspended: ZeroDivisionError: division by zero (in p((1 / $x)) <- q($x).), with {"x": 0}'
    ),
}


@pytest.mark.parametrize("text", FAILURES)
def test_a_failure_says_what_was_expected_and_found(text: str) -> None:
    one = RuleTest(RULES + text)
    one.run()
    assert [f"{each.line}: {each.text}" for each in one.failures] == [FAILURES[text]]


HOLDING = [
    'assert temp("a", 95) and send x(1)\nexpect hot("a"), sent x(1), sent alarm("a"), was("a")',
    'assert temp("a", 95)\nretract temp("a", 95) and assert temp("a", 96)\nexpect not sent _, hot("a")',
    'assert temp("a", 95)\nretract temp("a", 95)\nexpect not hot(_), not was(_)',
    'assert rule("r", "p(1 / $x) <- q($x)."), q(0)\nexpect rule-error("r", _, _, _)',
    'at @2026-01-01T00:00:00Z\nassert rule("r", "p($t) <- q() at $t."), q()\nexpect p(@2026-01-01T00:00:00Z)',
]


@pytest.mark.parametrize("text", HOLDING)
def test_expectations_that_hold(text: str) -> None:
    one = RuleTest(RULES + text)
    one.run()
    assert one.failures == [] and one.expectations


REFUSED = {
    "p(1).": "no line --- between the rules and what is expected of them",
    "p($x) <- q($y).\n---\n": "unsafe rule",
    "---\n\nexpects p(1)": "send, rules, at, after, expect, found 'expects' (line 3",
    "---\nassert p(1) and after 3 s": "expected one of assert, retract, send behind and (line 2",
    "---\nafter 3": "expected how long, such as 10 s (line 2",
    "---\nat 3": "expected a time",
    "---\nexpect not p(_) = []": "expected all facts of a pattern",
    "---\nassert p(1)\nassert p(1)": "line 3: p(1) is asserted already",
    "---\nretract p(1)": "line 2: p(1) is not asserted",
    "---\nassert p(1)\nat @1999-01-01T00:00:00Z": "line 3: time does not go back",
    '---\nrules "nowhere.rules"': "line 2: rules of nowhere.rules",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_test_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RuleTest(text).run()
    assert REFUSED[text] in str(caught.value)


def test_a_turn_that_strict_rules_refuse_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "strict.test"
    file.write_text('strict relation job(id: int). a($x) <- job($x).\n---\nassert job(1)\nassert job("x")\n')
    with pytest.raises(Refused) as caught:
        run_files(argparse.Namespace(files=[str(file)], config=None))
    assert caught.value.text.startswith(f'{file}: line 4: "x" as id of job, declared is id: int')


def test_rules_of_other_files_are_carried_out_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "more.rules").write_text("cold($d) <- temp($d, $v), $v < 0.")
    file = tmp_path / "both.test"
    file.write_text(
        RULES + 'rules "more.rules"\nassert temp("a", -1), temp("b", 91)\nexpect cold("a"), hot("a")'
    )
    assert run_files(argparse.Namespace(files=[str(file)], config=None)) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f'{file}:7: expected hot("a"), found hot("b")\n')
    assert err == f"{file}: 2 expectations, 1 failure\n"


def test_rules_are_tested_with_the_limits_of_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, config = tmp_path / "work.test", tmp_path / "daemon.toml"
    file.write_text("p($x, $y) <- q($x), q($y).\n---\nassert q(1), q(2), q(3), q(4)\nexpect p(1, 4)\n")
    config.write_text("[limits]\nderive_work = 1\nderive_work_per_action = 1\n")
    assert run_files(argparse.Namespace(files=[str(file)], config=None)) == 0
    assert run_files(argparse.Namespace(files=[str(file)], config=str(config))) == 1
    said = capsys.readouterr().out
    assert "is suspended: more than" in said and "limits derive_work=1" in said and "with {}" not in said
