"""Whatever rules strangers write into a real daemon, it is said what is wrong with them, and others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import dataspace
from dataspace import Record
from dataspace.kernel.actions import ASSERT, RETRACT
from tests.server.processes import DaemonProcess

pytestmark = pytest.mark.slow

HOSTILE = {
    "a rule that divides by nought": ("z(1 / $x) <- n($x).", "ZeroDivisionError"),
    "a rule that counts for ever": ("m($x) <- n($x). m($x + 1) <- m($x).", "units of work in one turn"),
    "a product of ten millions": (
        "p($x) <- n($x), n($y), n($z), $x + $y + $z < 0.",
        "units of work in one turn",
    ),
    "a rule that derives a rule": ('rule("child", "b($x) <- n($x).") <- n(0).', 'no rule may derive "rule"'),
    "a text of a megabyte": ("q($x) <- n($x). " * 65_000, "characters, limit 131072"),
    "thousands of rules": (" ".join([f"q{n}($x) <- n($x)." for n in range(3000)]), "more than 1000 rules"),
    "a body of thirty loops": (
        f"d($x0) <- {', '.join([f'n($x{n})' for n in range(30)])}.",
        "a body of 30 atoms, limit 17",
    ),
    "bodies that take long to make": (
        " ".join([f"d{k}($x0) <- {', '.join([f'n($x{n})' for n in range(17)])}." for k in range(35)]),
        "loops in all rules, limit 10000",
    ),
    "a collection of ten millions": ("c(collect($x)) <- n($x), n($y), n($z).", "units of work in one turn"),
    "a sum of texts": ('s(sum($t)) <- n($x), $t = "x".', "a sum of numbers, not of 'x'"),
    "a deep expression": (f"q($x) <- n($x), $x = {'(' * 5000}1{')' * 5000}.", "nested deeper than"),
    "a fact about every fact": ("audit($f) <- $f.", "in one turn"),
    "facts about pairs of facts": ("pair($f, $g) <- $f, $g.", "in one t"),
    "a fact deep in a fact": ("deep([[[$f]]]) <- $f.", "nested too deeply"),
    "a product of large texts": ("p($a, $b) <- big($a), big($b).", "in one t"),
    "no text at all": ("\x00\x00((((", "expected the head of a rule"),
}


WITHIN = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
sys.argv[0] = "server"
runpy.run_module("dataspace", run_name="__main__", alter_sys=True)
"""
"""A daemon that ends where it takes more memory than this."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("daemon")
    (folder / "small.toml").write_text("[limits]\nderived_per_turn = 20000\n", encoding="utf-8")
    process = DaemonProcess(folder / "data", "--config", str(folder / "small.toml"), program=("-c", WITHIN))
    process.start()
    yield process.url
    assert process.stop() == 0


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_rule_is_suspended_and_named_and_others_are_served(url: str, name: str) -> None:
    text, reason = HOSTILE[name]
    with trio.fail_after(60):
        async with dataspace.connect(url) as good, dataspace.connect(url) as evil:
            await good.assert_(Record("rule", "fine", "fine($x) <- n($x), $x < 3."))
            for n in range(220):
                await good.submit([(ASSERT, n + 10, Record("n", n))])
            for n in range(100 if "big(" in text else 0):
                await good.submit([(ASSERT, n + 300, Record("big", f"{n}" + "x" * 100_000))])
            await good.sync()
            claim = await evil.assert_(Record("rule", "hostile", text))
            errors = await good.matches('rule-error("hostile", _, _, $why)')
            assert len(errors) == 1 and reason in str(errors[0][0])
            assert sorted(await good.matches("fine($x)")) == [(0,), (1,), (2,)]
            await evil.retract(claim)
            assert await good.matches("rule-error(_, _, _, $why)") == []


AUDIT = Record("rule", "audit", "audit($f) <- $f.")
COPY = Record("rule", "copy", "copy($x) <- n($x).")


@pytest.mark.parametrize("kills", [False, True])
async def test_a_rule_about_every_fact_is_suspended_also_by_the_start_after(
    tmp_path: Path, kills: bool
) -> None:
    process = DaemonProcess(tmp_path / "data", program=("-c", WITHIN))
    process.start()
    with trio.fail_after(120):
        async with dataspace.connect(process.url, owner="ops") as space:
            await space.submit([(ASSERT, n, Record("n", n)) for n in range(1, 51)])
            await space.submit([(ASSERT, 100, AUDIT), (ASSERT, 101, COPY)])
            await space.sync()
            for start in range(3):
                ((why,),) = await space.matches('rule-error("audit", _, _, $why)')
                assert "nested deeper than 53 levels" in str(why) or "in one turn" in str(why)
                assert len(await space.matches("copy($x)")) == 50
                assert await space.matches("audit($f)") == []
                if start == 2:
                    break
                await trio.to_thread.run_sync(process.kill if kills else process.stop)
                await trio.to_thread.run_sync(process.start)
    process.kill()
    assert process.errors.count("rule 'audit' is suspended") == 1
    without = DaemonProcess(tmp_path / "data", "--without-rules")
    without.start()
    with trio.fail_after(30):
        async with dataspace.connect(without.url, owner="ops") as space:
            reasons = await space.matches("rule-error($name, _, _, $why)")
            assert {name for name, _ in reasons} == {"audit", "copy"}
            assert all("--without-rules" in str(why) for _, why in reasons)
            assert await space.matches("copy($x)") == [] and len(await space.matches("n($x)")) == 50
            await space.submit([(RETRACT, 100)])
            await space.sync()
    assert without.stop() == 0
    process.start()
    with trio.fail_after(30):
        async with dataspace.connect(process.url) as space:
            assert await space.matches("rule-error($name, _, _, $why)") == []
            assert len(await space.matches("copy($x)")) == 50
    assert process.stop() == 0
