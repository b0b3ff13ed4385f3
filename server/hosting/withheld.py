"""What a question about rules shows to a token that may not observe everything.

Rules are facts, and answers to questions about them contain texts of rules and facts that the rules read.  So
the right to inspect is not enough for an answer: the token needs the right to observe what the answer shows.

Always: a token that may not observe a fact, a rule or a pattern finds nothing of it in an answer, which says
that something is withheld.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataspace.errors import Refused
from dataspace.rules.engine.explaining import Proof
from index.patterns.patterns import discard, lit
from index.values.values import Record, Value
from server.config.rights import Permit

RULES: Final = Record("rule", discard(), discard())
EVERYTHING: Final = discard()

WITHHELD: Final = "withheld: this token may not observe it"
A_RULE: Final = "a rule that this token may not observe"


def check_question(permit: Permit, question: str, about: Value) -> None:
    """Raises ``Refused`` for a question whose answer shows what the token may not observe.

    A ``why`` is about what may be observed; what else its answer would show is for ``seen_by``.
    """
    if question == "why":
        permit.check_observe(about)
    elif question == "why-not":  # it looks at the facts of every relation that a rule reads
        permit.check_observe(EVERYTHING)
    else:
        permit.check_observe(RULES)


def seen_by(permit: Permit) -> Callable[[Proof], Proof]:
    """Returns a function that gives a proof without what a token may not observe; O(proof)."""
    if _may_observe(permit, EVERYTHING):
        return lambda proof: proof
    rules = _may_observe(permit, RULES)

    def seen(proof: Proof) -> Proof:
        if not _may_observe(permit, lit(proof.fact)):
            return Proof(WITHHELD, A_RULE if proof.rule else "")
        if not proof.rule:
            return proof
        premises = tuple([seen(each) for each in proof.premises])
        return (
            Proof(proof.fact, proof.rule, premises, proof.absent)
            if rules
            else Proof(proof.fact, A_RULE, premises)
        )

    return seen


def _may_observe(permit: Permit, pattern: Value) -> bool:
    try:
        permit.check_observe(pattern)
    except Refused:
        return False
    return True
