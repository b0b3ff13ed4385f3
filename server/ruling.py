"""Ruling: what can be asked about the rules of a space, and the rules that the daemon itself holds.

Rules are facts and need nothing of the daemon but to be asked about.  Those that its command line names are
claimed by an owner of their own, which is brought up to date at each start.

Always: a question changes nothing; after a start the daemon holds exactly the rules that it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dataspace.errors import Refused, UsageError
from dataspace.rules.hosting import RuleHost
from dataspace.rules.reading import read_rules
from dataspace.space import Space
from dataspace.wire.packets import Action
from index.values import Record, Value

QUESTIONS: Final = ("explain", "why", "why-not", "graph", "monotone")
OWNER: Final = "durable:dataspace rules"


def ask_rules(host: RuleHost, question: str, about: Value) -> str:
    """The answer to a question; ``Refused`` for one that cannot be answered."""
    if question not in QUESTIONS:
        raise Refused("bad-request", f"no question {question!r}, known are {', '.join(QUESTIONS)}")
    if host.program is None:
        return "there are no rules"
    explainer = host.program.explainer()
    match question:
        case "why":
            proof = explainer.why(about)
            return "no rule derives it now: ask why-not" if proof is None else str(proof)
        case "why-not":
            return explainer.why_not(about)
        case "graph":
            return explainer.graph()
        case "monotone":
            return explainer.monotonicity()
        case _:
            return explainer.explain()


def rules_of_files(paths: Sequence[Path]) -> list[Value]:
    """A rule fact for each file, named after it; ``UsageError`` for one that cannot be read or used."""
    facts: list[Value] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
            read_rules(text)
        except (OSError, UnicodeDecodeError, UsageError) as error:
            raise UsageError(f"rules of {path}: {error}") from None
        facts.append(Record("rule", path.stem, text))
    return facts


def actions_to_hold(space: Space, facts: Sequence[Value]) -> tuple[Action, ...]:
    """The actions that make these the rules that the daemon holds."""
    return space.replace_all(OWNER, facts, max(space.claims(OWNER), default=0) + 1)
