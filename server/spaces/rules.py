"""Rules and flows of a space: questions about them, and the rules and flows of the configuration.

Rules are facts.  The rules of the configuration are claimed by an owner of their own, which is updated at
each start.  Flows are functions that the configuration names, and run in the turns of the space.

Always: a question changes nothing; after a start the daemon holds exactly the rules that it was given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import trio

from dataspace.errors import Refused, UsageError
from dataspace.flows.flows import Flow
from dataspace.flows.inputs import Interval, Streamed
from dataspace.flows.mermaid import DiagramPart, mermaid, rows
from dataspace.kernel.actions import Action
from dataspace.kernel.bulk_assertions import replacing
from dataspace.kernel.defects import until_made
from dataspace.kernel.derivation import RULES, RuleHost
from dataspace.kernel.space import Space, Submit
from dataspace.rules.engine.explaining import Explainer, Owners, Proof, Sight
from dataspace.running.flows import pump
from index.patterns.patterns import lit
from index.patterns.text import unparse
from index.values.values import Map, Record, Value, key
from relay.store.errors import LogFailed
from server.config.rights import Permit
from server.config.rules import RuleText, RuleTexts, name_of, text_of
from server.system import SystemSpace

logger = logging.getLogger("dataspace")

T = TypeVar("T")

QUESTIONS: Final = ("explain", "why", "why-not", "graph", "monotone")
RESUME: Final = "resume"
"""The request to carry out a rule again."""

FORMS: Final = ("text", "rows")
CLAIMS_LOOKED_AT: Final = 100_000
"""Claims among which the owners of the facts of a proof are looked for, in about 50 ms."""

OWNER: Final = "durable:dataspace rules"


def ask_rules(
    space: Space, asker: Permit, question: str, about: Value, form: str = "text", now: int | None = None
) -> Value:
    """Returns the answer to a question, as text or as rows, of what the asker may observe.

    ``now`` is the present in microseconds, for rules over time.

    Raises ``Refused`` for an unknown question, and for one about what may not be observed.
    """
    if form not in FORMS:
        raise Refused("bad-request", f"no form {form!r}, known are {', '.join(FORMS)}")
    if question not in QUESTIONS:
        raise Refused("bad-request", f"no question {question!r}, known are {', '.join(QUESTIONS)}")
    space.finish()
    host, sight = space.rules, None if asker.open else sight_of(asker)
    explainer = None if host.program is None else host.program.explainer(sight, now)
    if question == "graph":
        parts = _graph(host, explainer, sight)
        if form == "rows":
            return tuple([Map(each) for each in rows(*parts)])
        return mermaid(*parts) if parts else "there are no rules, and no flows"
    if sight is not None and question in ("why", "why-not") and not sight.pattern(about):
        raise Refused("not-allowed", f"the token does not allow to observe {unparse(about):.200}")
    if explainer is None:
        return "there are no rules" if form == "text" else ()
    answer = _answer(space, explainer, question, about, as_text=form == "text")
    return answer if isinstance(answer, str) else tuple(answer)


def sight_of(asker: Permit) -> Sight:
    """Returns what the bearer of a token may observe, fact by fact and pattern by pattern."""
    return Sight(lambda fact: asker.allows_observe(lit(fact)), asker.allows_observe)


def _graph(host: RuleHost, explainer: Explainer | None, sight: Sight | None) -> list[DiagramPart]:
    """Returns the graphs of rules and flows; refused where something in them may not be observed."""
    parts = [] if explainer is None else [explainer.description.part()]
    parts += (flows := host.flows.parts())
    if sight is not None and (flows or not (explainer is None or explainer.description.shows_all)):
        raise Refused(
            "not-allowed", "the token does not allow to observe all that the graph of the rules shows"
        )
    return parts


def _answer(
    space: Space, explainer: Explainer, question: str, about: Value, *, as_text: bool
) -> str | Iterable[Map]:
    """Returns an answer as text, or as rows for programs."""
    description = explainer.description
    match question:
        case "why":
            proof = _proof(space.rules, explainer, about)
            if proof is None:
                return f"{unparse(about)} does not hold: ask why-not" if as_text else ()
            owners = _owners(space, proof)
            return "\n".join(proof.lines(owners=owners)) if as_text else proof.rows(owners=owners)
        case "why-not":
            return explainer.why_not(about) if as_text else explainer.why_not_rows(about)
        case "monotone":
            return description.monotonicity() if as_text else description.monotonicity_rows()
        case _:
            return description.explain() if as_text else description.explained_rows()


def _owners(space: Space, proof: Proof) -> Owners:
    """Returns who claims the facts of a proof, as far as so many claims are looked at."""
    found: dict[Hashable, list[str]] = {key(fact): [] for fact in proof.claimed()}
    left = CLAIMS_LOOKED_AT
    for owner in space.owners():
        if owner == RULES:
            continue
        for value in islice(space.claims(owner).values(), left):
            left -= 1
            names = found.get(key(value))
            if names is not None and owner not in names:
                names.append(owner)
    return found


def _proof(host: RuleHost, explainer: Explainer, about: Value) -> Proof | None:
    """Returns the proof of a fact, or of the first match of a pattern such as ``reach("a", _)``."""
    proof = explainer.why(about)
    if proof is None and host.is_claimed(about):
        return Proof(about)
    if proof is None and (found := explainer.match(about)) is not None:
        proof = explainer.why(found)
    if proof is None and (found := explainer.claimed(about)) is not None:
        return Proof(found)
    return proof


def made(space: Space, turn: Callable[[], T]) -> T:
    """Returns what a turn of a start returns.

    A defect of the rules suspends texts in the end, and the daemon starts.  Raises what the turn refuses, and
    what the log raises.
    """

    def failed(error: Exception, attempt: int) -> None:
        if isinstance(error, Refused | UsageError | LogFailed) or space.damage is not None:
            raise error
        space.rules.defects.choose(error, attempt)

    return until_made(turn, failed)


def hold_from_start(
    space: Space, given: Sequence[Path | RuleText], clock: Callable[[], int], submit: Submit
) -> None:
    """Makes the first turn of a space that has started, with the rules of the configuration.

    Their errors are logged, and end nothing.
    """
    made(space, lambda: _hold(space, given, clock(), submit))


def _hold(space: Space, given: Sequence[Path | RuleText], time: int, submit: Submit) -> None:
    facts = _startable(space, given)
    rules = actions_to_hold(space, facts)
    try:
        if rules:
            space.commit(OWNER, rules, time, submit=submit, own=True)
    except Refused as refusal:
        logger.error("rules of space %s stay as the log has them: %s", space.name, refusal)
        rules = ()
    if not rules:
        space.advance(time, submit=submit)
    warn_of_errors(space.rules, facts, unread=True)


def _startable(space: Space, given: Sequence[Path | RuleText]) -> list[Value]:
    """Returns the rule facts that a daemon holds from its start on, and logs what is wrong with files.

    One bad file does not keep a daemon from starting.  A file that cannot be read leaves the rules of its
    name as the log has them; a text that cannot be carried out is held, and has its ``rule-error``.
    """
    facts: list[Value] = []
    for source in given:
        try:
            facts.append(Record("rule", name_of(source), text_of(source)))
        except UsageError as error:
            kept = _held(space, source)
            facts += [fact for fact in kept if fact not in facts]
            logger.error("%s; rules of this name that are held from before: %d", error, len(kept))
    return facts


def hold_from_now(
    space: Space, given: Sequence[Path | RuleText], commit: Callable[[str, Sequence[Action]], object]
) -> tuple[bool, list[str]]:
    """Makes these the rules that the daemon holds, in one turn.

    Returns whether others were held before, and the errors of the rules that are not taken.  Raises what
    ``commit`` raises.
    """
    facts, errors = _reloaded(space, given)
    rules = actions_to_hold(space, facts)
    if rules:
        commit(OWNER, rules)
        warn_of_errors(space.rules, facts)
    return bool(rules), errors


def _reloaded(space: Space, given: Sequence[Path | RuleText]) -> tuple[list[Value], list[str]]:
    """Returns the rule facts that a running daemon holds from now on, and the errors of the others.

    A text that cannot be read or carried out, or not together with those before it, leaves the rules of its
    name as they are held now, and the others are taken.
    """
    texts, errors = RuleTexts(space.rules.functions), list[str]()
    for source in given:
        try:
            texts.add(source)
        except UsageError as error:
            kept = [fact for fact in _held(space, source) if fact not in texts.facts]
            for fact in kept:
                texts.adopt(fact)
            errors.append(f"{error} ({'its old text stays' if kept else 'no old text is held'})")
    return texts.facts, errors


def _held(space: Space, given: Path | RuleText) -> list[Record]:
    """Returns the rule facts of this name that the daemon holds."""
    held = space.claims(OWNER).values()
    return [fact for fact in held if isinstance(fact, Record) and fact.fields[0] == name_of(given)]


def warn_of_errors(host: RuleHost, facts: Sequence[Value], *, unread: bool = False) -> None:
    """Logs the rule texts of the daemon that are not carried out, with the reason.

    With ``unread`` also texts of others that cannot be read, as where a function is not registered any more.
    """
    held = {fact.fields for fact in facts if isinstance(fact, Record)}
    for entry in host.program.entries.values() if host.program is not None else ():
        if entry.error and ((entry.name, entry.text) in held or (unread and not entry.rules)):
            logger.warning("rule %.80s is not carried out: %.400s", entry.name, entry.error)


def actions_to_hold(space: Space, facts: Sequence[Value]) -> tuple[Action, ...]:
    """Returns the actions that make these the rules that the daemon holds."""
    return replacing(space.claims(OWNER), facts, space.fresh_handle(OWNER))


def rules_status(rules: RuleHost, suspended: int) -> dict[str, object]:
    """Returns how many rules there are, ``suspended`` of them, and which one takes most time."""
    counts, (name, spent, total) = rules.statistics(), rules.costliest()
    return {
        "rules": 0 if counts is None else counts.rules,
        "rule_texts": 0 if counts is None else counts.texts - counts.failed,
        "rules_suspended": suspended,
        "rules_milliseconds": total // 1_000_000,
        "costliest_rule": name,
        "costliest_rule_milliseconds": spent // 1_000_000,
    }


class Suspensions:
    """States in the space ``system`` which rules of a space are suspended."""

    def __init__(self, name: str, rules: RuleHost, system: SystemSpace) -> None:
        self._name = name
        self._rules = rules
        self._system = system
        self._stated: dict[Record, None] = {}
        rules.on_error = self._state

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._stated)

    def clear(self) -> None:
        """States none any more."""
        self._take({})

    def _state(self) -> None:
        self._take(
            {Record("suspended", self._name, name, why): None for name, _, why in self._rules.suspended()}
        )

    def _take(self, found: dict[Record, None]) -> None:
        self._system.state(
            [each for each in found if each not in self._stated],
            [each for each in self._stated if each not in found],
        )
        self._stated = found


class HostedFlows:
    """The flows of one space, by their titles.

    Each is a ``module:function`` that makes a flow (``dataspace.rules``) of its arguments.  It is attached
    before the first client is served, so that its facts exist from the start, like derived facts.  Flows that
    read streams or clocks run in tasks beside the sessions.

    Always: a flow that cannot be made or ordered in strata ends the start of the daemon, with its name; a
    later error in a flow or in a stream of it ends that flow alone.
    """

    def __init__(self, flows: Mapping[str, Flow]) -> None:
        self._flows = flows

    def attach(self, space: Space) -> None:
        """Runs the flows in the turns of a space, from the next one on."""
        for name, flow in self._flows.items():
            try:
                space.rules.attach(name, flow)
            except UsageError as error:
                raise UsageError(f"flow {name}: {error}") from None

    async def run(self, turn: Callable[[], object]) -> None:
        """Reads their streams and clocks until cancelled; ``turn`` makes a turn of the space."""
        async with trio.open_nursery() as nursery:
            for name, flow in self._flows.items():
                if any(isinstance(each, Streamed | Interval) for each in flow.operators.values()):
                    nursery.start_soon(_pump, name, flow, turn)


async def _pump(name: str, flow: Flow, turn: Callable[[], object]) -> None:
    try:
        await pump(flow, turn=turn)
    except Exception:  # a flow's fence: a stream that fails must not end the daemon
        logger.exception("flow %s is fed no more", name)
