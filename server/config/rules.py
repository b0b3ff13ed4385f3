"""Rules that the configuration names, as files or as texts, read into facts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dataspace.errors import UsageError
from dataspace.foreign import read_utf8
from dataspace.rules.engine.dependencies import DependencyGraph
from dataspace.rules.language.hosted import NO_FUNCTIONS, Functions
from dataspace.rules.language.lowering import lowered
from dataspace.rules.language.parser import MAX_TEXT, read_rules
from index.values.values import Record, Value


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule in the configuration itself."""

    name: str
    text: str


def rule_facts(given: Sequence[Path | RuleText], functions: Functions = NO_FUNCTIONS) -> list[Value]:
    """Returns a rule fact for each file, named after it, and for each text.

    Raises ``UsageError`` for a rule that cannot be read or carried out, or not together with the rules before
    it.
    """
    texts = RuleTexts(functions)
    for each in given:
        texts.add(each)
    return texts.facts


class RuleTexts:
    """Texts of rules that can be carried out together, taken one after another."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self.facts: list[Value] = []
        """A rule fact for each."""
        self._graph = DependencyGraph(())

    def add(self, given: Path | RuleText) -> None:
        """Takes one more; raises ``UsageError``, and nothing is taken, for a rule that cannot be read or
        carried out, or not together with the rules before it."""
        text = text_of(given)
        try:
            self._graph = self._graph.grown(lowered(read_rules(text, self._functions), name_of(given), text))
        except UsageError as error:
            raise UsageError(f"{_source(given)}: {error}") from None
        self.facts.append(Record("rule", name_of(given), text))

    def adopt(self, fact: Record) -> None:
        """Takes a rule fact that is held already, whether or not it can be carried out."""
        self.facts.append(fact)
        with suppress(UsageError):
            name, text = map(str, fact.fields)
            self._graph = self._graph.grown(lowered(read_rules(text, self._functions), name, text))


def text_of(given: Path | RuleText) -> str:
    """The text of a file or a setting; ``UsageError`` if it cannot be read or is too long to be held."""
    if isinstance(given, RuleText):
        text = given.text
    else:
        try:
            text = read_utf8(given, MAX_TEXT + 1)  # a device, for instance, has no end
        except (OSError, UnicodeError) as error:
            raise UsageError(f"{_source(given)}: {error}") from None
    if len(text) > MAX_TEXT:
        raise UsageError(f"{_source(given)}: more than {MAX_TEXT} characters: divide it into several files")
    return text


def name_of(given: Path | RuleText) -> str:
    """The name under which a rule is held: its file's without the ending, or its own."""
    return given.stem if isinstance(given, Path) else given.name


def _source(given: Path | RuleText) -> str:
    return f"rules of {given}" if isinstance(given, Path) else f"rule {given.name!r}"
