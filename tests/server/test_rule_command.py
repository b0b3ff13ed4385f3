"""The command ``dataspace rule``, against a real daemon, as a user meets it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.processes import DaemonProcess
from tests.server.test_command import Running, run

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


def test_list_shows_each_rule_by_its_name(url: str) -> None:
    assert said(url, "list") == f"reach:\n    {REACH}\n"


def test_why_shows_a_proof_down_to_what_is_claimed(url: str) -> None:
    assert said(url, "why", 'reach("a", "c")').splitlines() == [
        'reach("a", "c")    by reach($x, $z) <- reach($x, $y), road($y, $z).',
        '    reach("a", "b")    by reach($x, $y) <- road($x, $y).',
        '        road("a", "b")    claimed',
        '    road("b", "c")    claimed',
    ]
    assert said(url, "why", 'reach("c", "a")') == 'reach("c", "a") does not hold: ask why-not\n'
    assert said(url, "why", 'reach(_, "c")').startswith('reach("b", "c")    by reach'), (
        "the first that matches"
    )


def test_why_not_names_what_lacks_or_what_may_have_been_meant(url: str) -> None:
    lacking = said(url, "why-not", 'reach("a", "z")')
    assert 'no match of road($x, $y)  with $x = "a", $y = "z"' in lacking
    assert said(url, "why-not", "reech(_, _)") == (
        "no rule derives facts like reech(_, _): did you mean reach($x, $y)?\n"
    )


def test_explain_shows_strata_indexes_orders_and_what_each_rule_took(url: str) -> None:
    lines = said(url, "explain").splitlines()
    assert lines[0] == "stratum 0"
    assert any(re.fullmatch(r"    reach +3 rows  indexes  ?by 1: 2", line) for line in lines), lines
    assert any(re.fullmatch(r"    \d+ rows took \d+\.\d ms", line) for line in lines), lines
    assert "    reach($x, $y) -> road($y, $z) (by 0), reach($x, $z)" in lines


def test_graph_and_monotone_draw_and_report(url: str) -> None:
    graph = said(url, "graph")
    assert graph.startswith("flowchart LR\n") and 'subgraph s0["stratum 0"]' in graph
    assert said(url, "monotone").splitlines()[1::2] == ["    monotone", "    monotone"]


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
