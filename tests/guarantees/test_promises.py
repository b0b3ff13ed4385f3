"""What a killed daemon and cut links leave behind breaks no promise; a history with a fault is found out."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from dataspace import absent, unchanged
from dataspace.kernel.actions import ASSERT
from dataspace.kernel.changes import Claims
from index.values.values import Record
from tests.guarantees.clients import FACTS, TOPIC
from tests.guarantees.history import Heard, History, Turn
from tests.guarantees.recording import record
from tests.guarantees.rules import DERIVED
from tests.guarantees.validators import VALIDATORS, broken, judged

ROUNDS: Final = int(os.environ.get("TORTURE_ROUNDS", "0"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """One recorded run."""
    return record(tmp_path_factory.mktemp("run") / "data", 1, kills=2, turns=60)


def test_a_recorded_run_breaks_no_promise(history: History) -> None:
    assert broken(history) == []


def test_the_run_has_all_that_is_judged(history: History) -> None:
    assert judged(history) == VALIDATORS.keys() - {"rights"}, "tenants are for tests/abuse"
    answers = {type(turn.answer) for turn in history.turns}
    assert answers == {int, str}, "turns that were accepted, and turns that were refused"
    assert all(len(view.epochs) > 1 for view in history.views.values())
    assert history.ended and all(len(facts) == FACTS for facts in history.ended)
    assert history.terms
    assert {type(turn.answer) for turn in history.turns if turn.expected} == {int, str}
    assert any(turn.others for turn in history.turns if isinstance(turn.answer, int))
    assert any(epoch.silent for epoch in history.log), "claims of what others claim"


@pytest.mark.torture
@pytest.mark.skipif(not ROUNDS, reason="one run is enough; make torture has further seeds")
@pytest.mark.parametrize("seed", range(2, 3 + ROUNDS))
def test_further_runs_break_no_promise(tmp_path: Path, seed: int) -> None:
    assert broken(record(tmp_path / "data", seed, kills=2 + seed % 4, turns=60 + ROUNDS)) == []


# -- planted faults --------------------------------------------------------------------------------


def _with(history: History, at: int, **changes: object) -> None:
    history.log[at] = history.log[at]._replace(**changes)  # type: ignore[arg-type]  # fields of an epoch


def _entry(history: History, label: str, *, removed: bool = False) -> int:
    """Returns the place of the first entry that adds, or removes, a fact with this label."""
    for at, epoch in enumerate(history.log):
        if any(isinstance(fact, Record) and fact.label == label for fact in _facts(epoch, removed)):
            return at
    raise AssertionError(label)


def _facts(epoch: object, removed: bool) -> list[object]:
    return list(epoch.removed if removed else epoch.added)  # type: ignore[attr-defined]  # an epoch


def ghost(history: History) -> None:
    """A fact stays although its last claim has ended."""
    _with(history, _entry(history, "busy", removed=True), removed=[])


def fact_of_nobody(history: History) -> None:
    """A fact appears that no owner claims."""
    at = _entry(history, "busy")
    _with(history, at, added=[*history.log[at].added, Record("ghost", 1)])


def session_in_two_epochs(history: History) -> None:
    """One fact of a session goes one epoch later than the others."""
    late = min(history.ended[0], key=str)
    at = max(at for at, epoch in enumerate(history.log) if late in epoch.removed)
    _with(history, at, removed=[fact for fact in history.log[at].removed if fact != late])
    after = history.log[-1]
    history.log.append(
        after._replace(number=after.number + 1, added=[], messages=[], removed=[late], client=None)
    )


def half_turn(history: History) -> None:
    """A turn's message is missing from its epoch."""
    at = next(at for at, epoch in enumerate(history.log) if epoch.client and epoch.messages)
    _with(history, at, messages=[])


def refused_turn_that_happened(history: History) -> None:
    """A turn that was refused has an epoch."""
    refused = next(turn for turn in history.turns if isinstance(turn.answer, str))
    at = len(history.log) - 1
    _with(history, at, client=refused.client, sequence=refused.sequence)


def turn_twice(history: History) -> None:
    """A turn that was sent again was applied again."""
    done = next(epoch for epoch in history.log if epoch.client)
    last = history.log[-1]
    history.log.append(done._replace(number=last.number + 1, time=last.time))


def wrong_epoch(history: History) -> None:
    """A turn that was sent again is answered with another epoch than it made."""
    at = next(at for at, turn in enumerate(history.turns) if isinstance(turn.answer, int))
    turn = history.turns[at]
    assert isinstance(turn.answer, int)
    history.turns[at] = replace(turn, answer=turn.answer + 1)


def lost_epoch(history: History) -> None:
    """An epoch that was acknowledged is not in the log."""
    known = {(turn.client, turn.sequence) for turn in history.turns if isinstance(turn.answer, int)}
    at = next(at for at, epoch in enumerate(history.log) if (epoch.client, epoch.sequence) in known)
    del history.log[at]


def number_used_twice(history: History) -> None:
    """After a crash the number of an epoch that was lost is given to another one."""
    _with(history, -1, number=history.log[-2].number, silent=False)


def time_goes_back(history: History) -> None:
    """An epoch is earlier than the one before it."""
    _with(history, -1, time=history.log[0].time - 1)


def blink(history: History) -> None:
    """One epoch adds and removes the same fact."""
    at = _entry(history, "busy")
    _with(history, at, removed=[*history.log[at].removed, *history.log[at].added])


def gap(history: History) -> None:
    """An observer that reconnects misses one epoch."""
    del history.views["said($who, $n)"].epochs[5]


def repeated(history: History) -> None:
    """An observer that reconnects is shown an epoch again."""
    epochs = history.views["said($who, $n)"].epochs
    epochs.insert(5, epochs[4])


def split(history: History) -> None:
    """An observer is shown half of an epoch."""
    epochs = history.views["busy($who, $n)"].epochs
    at = next(at for at, each in enumerate(epochs) if each.added and each.removed)
    epochs[at] = replace(epochs[at], removed=())


def lease_cut_short(history: History) -> None:
    """A lease ends before its time."""
    history.terms[0] = replace(history.terms[0], until=history.terms[0].until + 3_600_000_000)


def grace_cut_short(history: History) -> None:
    """A client comes back in time and finds its session gone."""
    history.graced[0].returns.append((1.0, False))


def fact_that_blinks(history: History) -> None:
    """A fact of a session that was resumed comes a second time."""
    at = _entry(history, "kept")
    again = history.log[-1]
    history.log.append(again._replace(number=again.number + 1, added=history.log[at].added, client=None))


def fact_that_is_away(history: History) -> None:
    """A session that was resumed has no fact for the length of an epoch."""
    at = max(at for at, epoch in enumerate(history.log) if Record("kept", "near", 3) in epoch.added)
    before = history.log[at - 1]
    gone = before._replace(added=[], messages=[], removed=[Record("kept", "near", 2)], client=None)
    history.log.insert(at, gone)


def state_of_a_process_that_is_behind(history: History) -> None:
    """A client goes to another process, which shows it an earlier state than it had seen."""
    heard = history.heard["Alice"]
    heard.append(Heard(heard[-1].epoch - 1, "follower", len(heard)))


def deposed_leader(history: History) -> None:
    """A leader accepts a turn in an epoch of the next one."""
    history.leaders["first"] = min(history.firsts)
    at = max(at for at, turn in enumerate(history.turns) if isinstance(turn.answer, int))
    history.turns[at] = replace(history.turns[at], at="first")


def earlier_term(history: History) -> None:
    """A leader writes to the store once the next one has."""
    history.chain += [(1, 1), (2, 5), (1, 9)]


def session_stolen(history: History) -> None:
    """A session is resumed by a client that does not know its secret."""
    history.stolen.append("near")


def condition_that_did_not_hold(history: History) -> None:
    """A turn that expected that nothing had changed happened after much had."""
    logged = {(epoch.client, epoch.sequence) for epoch in history.log[len(history.log) // 2 :]}
    at = next(at for at, turn in enumerate(history.turns) if (turn.client, turn.sequence) in logged)
    history.turns[at] = replace(history.turns[at], expected=[unchanged("busy(_, _)", since=0)])


def refused_for_nothing(history: History) -> None:
    """A turn is refused, although what it expected held all the time."""
    known = max(turn.answer for turn in history.turns if isinstance(turn.answer, int))
    refused = Turn("owner:Alice", 1_000_001, (), "expectation", (), [absent("nobody(_)")], after=known // 2)
    history.turns.append(refused)


def later_turn_in_an_earlier_epoch(history: History) -> None:
    """A turn is in an epoch before one that was answered when it was submitted."""
    at, turn = next((at, turn) for at, turn in enumerate(history.turns) if isinstance(turn.answer, int))
    history.turns[at] = replace(turn, after=turn.answer + 1)  # type: ignore[operator]  # as just chosen


def turn_of_another_space(history: History) -> None:
    """The log has a turn that was sent to another space."""
    _with(history, -1, client="owner:Alice", sequence=1_000_000)


def claim_that_was_lost(history: History) -> None:
    """What a turn asserted is not there in the end, and nothing says why."""
    at = next(at for at in range(len(history.turns) - 1, 0, -1) if isinstance(history.turns[at].answer, int))
    turn = history.turns[at]
    history.turns[at] = replace(turn, actions=[*turn.actions, (ASSERT, 77, Record("busy", "Alice", 77))])


def epoch_of_topic_lost(history: History) -> None:
    """An epoch of a topic that was taken is not kept."""
    del history.topics[TOPIC].epochs[1]


def two_holders(history: History) -> None:
    """A lock is given to a second client while the first one holds it."""
    at = _entry(history, "lock")
    _with(history, at, added=[*history.log[at].added, Record("lock", "store", "Mallory", 1)])


def derived_of_nothing(history: History) -> None:
    """A derived fact stays although what it follows from has gone."""
    at = len(history.log) - 1
    stays = Claims(DERIVED, [(1 << 40, Record("twice", 77))])
    _with(history, at, added=[*history.log[at].added, Record("twice", 77)], claims=[stays])


def derived_too_little(history: History) -> None:
    """A fact that follows is not derived."""
    for at, epoch in enumerate(history.log):
        _with(history, at, claims=[each for each in epoch.claims if each.owner != DERIVED])


def fact_of_another_tenant(history: History) -> None:
    """A tenant asserts what its token does not allow."""
    history.rights = {"mallory": "of_mallory"}
    at = _entry(history, "busy")
    _with(history, at, added=[*history.log[at].added, Record("busy", "by-mallory", 1)])


def interest_in_a_secret(history: History) -> None:
    """The interest of a tenant in what it may not observe is announced."""
    history.rights, history.secret = {"mallory": "of_mallory"}, frozenset({"of_bank"})
    at = _entry(history, "busy")
    _with(history, at, added=[*history.log[at].added, Record("Observe", Record("of_bank", Record("_")))])


PLANTED: Final[dict[Callable[[History], None], str]] = {
    ghost: "ownership",
    fact_of_nobody: "ownership",
    session_in_two_epochs: "session_ends",
    half_turn: "whole_turns",
    refused_turn_that_happened: "whole_turns",
    turn_twice: "once",
    wrong_epoch: "once",
    lost_epoch: "durability",
    number_used_twice: "durability",
    time_goes_back: "order",
    blink: "order",
    gap: "observation",
    repeated: "observation",
    split: "observation",
    lease_cut_short: "leases",
    grace_cut_short: "graces",
    fact_that_blinks: "graces",
    fact_that_is_away: "graces",
    state_of_a_process_that_is_behind: "observation",
    deposed_leader: "durability",
    earlier_term: "durability",
    session_stolen: "graces",
    condition_that_did_not_hold: "conditions",
    refused_for_nothing: "conditions",
    later_turn_in_an_earlier_epoch: "order",
    turn_of_another_space: "spaces",
    claim_that_was_lost: "outcome",
    epoch_of_topic_lost: "topics",
    two_holders: "locks",
    derived_of_nothing: "rules",
    derived_too_little: "rules",
    fact_of_another_tenant: "rights",
    interest_in_a_secret: "rights",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(history: History, plant: Callable[[History], None]) -> None:
    faulty = deepcopy(history)
    plant(faulty)
    assert list(VALIDATORS[PLANTED[plant]](faulty))


def test_each_validator_finds_a_planted_fault() -> None:
    assert set(PLANTED.values()) == set(VALIDATORS)


# -- pieces ----------------------------------------------------------------------------------------


def test_a_history_that_is_continued_breaks_no_promise_either(history: History) -> None:
    later = _second_half(history)
    assert later.base and len(later.changes) > 20
    assert broken(later) == []
    assert {"ownership", "durability", "outcome", "observation", "rules"} <= judged(later)


@pytest.mark.parametrize(
    "plant", [ghost, lost_epoch, gap, claim_that_was_lost], ids=lambda plant: plant.__name__
)
def test_a_planted_fault_is_found_in_a_history_that_is_continued(
    history: History, plant: Callable[[History], None]
) -> None:
    later = _second_half(deepcopy(history))
    plant(later)
    assert list(VALIDATORS[PLANTED[plant]](later))


def _second_half(history: History) -> History:
    """Returns what follows the writers' epoch in the middle, as if the run had been judged there."""
    written = [epoch for epoch in history.log if epoch.client in ("owner:Alice", "owner:Bob")]
    upto = written[len(written) // 2 - 1].number  # silent entries repeat the number before them
    later = replace(history, log=[epoch for epoch in history.log if epoch.number <= upto]).continued()
    later.log += [epoch for epoch in history.log if epoch.number > upto]
    return later
