"""Rules that the configuration names, as files or as texts, read into facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dataspace.errors import UsageError
from dataspace.rules.engine.dependencies import Outline
from dataspace.rules.language.parser import read_rules
from dataspace.rules.language.syntax import Rule
from index.values.values import Record, Value


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule that is written in the configuration itself."""

    name: str
    text: str


def rule_facts(given: Sequence[Path | RuleText]) -> list[Value]:
    """Returns a ``rule`` fact for each file, named after it, and for each text.

    Raises ``UsageError`` for one that cannot be read, or used together with those before it.
    """
    facts: list[Value] = []
    rules: list[Rule] = []
    for each in given:
        source = f"rules of {each}" if isinstance(each, Path) else f"rule {each.name!r}"
        try:
            text = each.read_text(encoding="utf-8") if isinstance(each, Path) else each.text
            rules += read_rules(text)
            Outline(rules)
        except (OSError, UnicodeDecodeError, UsageError) as error:
            raise UsageError(f"{source}: {error}") from None
        facts.append(Record("rule", each.stem if isinstance(each, Path) else each.name, text))
    return facts
