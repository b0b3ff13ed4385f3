"""The programs of RULES.md are among those that the examples test."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_the_programs_of_the_document_are_tested() -> None:
    document = (TOP / "dataspace/RULES.md").read_text(encoding="utf-8")
    indented = [textwrap.dedent(each) for each in re.findall(r"\n\n((?:    [^\n]*\n)+)", document)]
    programs = [each for each in indented if "<-" in each and "literal" not in each and "---" not in each]
    tested = "".join([file.read_text(encoding="utf-8") for file in (TOP / "examples/rules").glob("*.test")])
    assert len(programs) >= 2
    for each in programs:
        assert each in tested
