"""The site has every document, and what its own pages name is there: commands, settings, metrics, alerts."""

from __future__ import annotations

import argparse
import doctest
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from docs import plan
from docs.assemble import DeadLink, _link_line as link_line, assembled, section
from docs.checks.blocks import blocks
from docs.plan import MODULES, TOP, documents, sections
from docs.reference import codes, tables
from docs.reference.metrics import alerts, exposed
from docs.reference.settings import EXPLAINED, UNITS
from server.cli.parser import parser
from server.cli.table import ROWS
from server.config.bounds import Within
from server.config.settings import SETTINGS
from server.daemon.features import FEATURES
from server.monitoring.metrics import all_metrics
from tests.test_public_names import PUBLIC

PAGES: Final = sorted((TOP / "docs" / "pages").rglob("*.md"))
PLANNED: Final = [page for _, group in sections() for page in group]
SITE: Final = dict(assembled())

by_page = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(TOP)) for page in PAGES])


def test_every_document_is_a_page_at_one_place() -> None:
    shown = {page.file for page in PLANNED if page.file is not None}
    assert {*documents(), *PAGES} - shown == set()
    assert not [title for title, pages in sections() if title == "More" and len(pages) > 3], (
        "give them a place"
    )
    assert len(documents()) > 25
    assert len({page.place for page in PLANNED}) == len(PLANNED) == len(SITE)


def test_every_public_module_has_a_page_of_all_its_names() -> None:
    assert sorted(MODULES) == sorted(PUBLIC)
    assert SITE["reference/api/dataspace.md"].count("\n::: ") > 30


def test_links_lead_to_pages_of_the_site() -> None:
    for place, text in SITE.items():
        for target in re.findall(r"\]\(([^)#:\s]+\.md)[#)]", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            assert (Path("/") / place).parent.joinpath(target).resolve() in {
                Path("/") / each for each in SITE
            }, f"{place}: {target}"


def test_a_link_to_a_file_that_is_not_there_is_an_error() -> None:
    readme = TOP / "README.md"
    with pytest.raises(DeadLink, match=r"nowhere\.md is not there"):
        link_line("see [it](nowhere.md)", readme, "project/readme.md", {})
    with pytest.raises(DeadLink, match="no section 'Nothing'"):
        section(readme, "Nothing")
    there = {TOP / "GUARANTEES.md": "project/guarantees.md"}
    assert link_line("[a](GUARANTEES.md#x) [b](LICENSE)", readme, "start.md", there) == (
        "[a](project/guarantees.md#x) `b`"
    )


def test_pages_for_users_are_apart_from_pages_for_implementers() -> None:
    inside = {page.place for title, group in sections() if title == plan.INTERNALS for page in group}
    assert inside == {place for place in SITE if place.startswith("internals/")}
    assert {"internals/wire.md", "internals/architecture.md"} <= inside


@pytest.mark.parametrize(
    "word",
    [
        "consumer group",
        "pub/sub",
        "high availability",
        "docker",
        "average",
        "exactly once",
        "failover",
        "TTL",
        "authentication",
        "performance",
    ],
)
def test_a_word_that_users_search_for_leads_to_a_page(word: str) -> None:
    rows = [line for line in SITE["words.md"].splitlines() if word in line.partition(" | ")[0]]
    assert rows and all("](" in row for row in rows)


def test_search_shows_what_is_here_before_programs_for_other_servers_and_pages_for_implementers() -> None:
    ranks = {
        place: float(re.match(r"---\nsearch: \{boost: ([\d.]+)\}\n---\n|", text)[1] or 1)  # type: ignore[index]
        for place, text in SITE.items()
    }
    assert ranks["words.md"] > ranks["recipes/lock.md"] > ranks["internals/wire.md"]
    assert {ranks[place] for place in SITE if place.startswith("recipes/beside/")} == {min(ranks.values())}


def test_the_first_page_says_how_to_install() -> None:
    installs = [each.text for each in blocks(SITE["index.md"]) if each.language == "sh"]
    assert installs[:1] == [each.text for each in blocks(SITE["start.md"]) if each.language == "sh"][:1]


@pytest.mark.parametrize(
    "page",
    [
        "concepts.md",
        "guide/python.md",
        "guide/shell.md",
        "guide/http.md",
        "guide/javascript.md",
        "project/readme.md",
    ],
)
def test_where_observing_is_explained_an_epoch_is_shown_before_it_is_on_disk(page: str) -> None:
    assert "before it is on disk" in " ".join(SITE[page].split())


def test_the_read_me_runs_the_command_in_one_way() -> None:
    readme = SITE["project/readme.md"]
    assert re.findall(r"\S*bin/dataspace|python3? -m dataspace\S*", readme) == []
    assert 'export PATH="$PWD/.venv/bin:$PATH"' in readme
    assert re.findall(r"^\$ (?!dataspace |python )", readme, re.MULTILINE) == []


def test_search_works_in_pages_that_are_opened_as_files() -> None:
    stated = (TOP / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    (shim,) = re.findall(r"polyfills: \[(\S+)\]", stated)
    assert "\n  - offline" in stated and (TOP / "docs" / shim).is_file()


def test_the_runbook_has_an_entry_for_each_alert_in_their_order() -> None:
    entries = re.findall(r"^## (Dataspace\w+)$", SITE["operations/runbook.md"], re.MULTILINE)
    assert entries == [alert.name for alert in alerts()]


def test_generated_pages_have_everything() -> None:
    for setting in SETTINGS:
        assert f"| `{setting.name}` |" in SITE["reference/settings.md"]
    assert EXPLAINED.keys() == {setting.name for setting in SETTINGS}
    assert all(each.keys() == {"purpose", "change"} and all(each.values()) for each in EXPLAINED.values())
    readers = {each.read.read if isinstance(each.read, Within) else each.read for each in SETTINGS}
    assert {each for each in readers if each not in UNITS} == {
        each.read
        for each in SETTINGS
        if each.name in ("log.archive_cluster", "log_format", "log_level", "loop", "show")
    }
    for metric in all_metrics(FEATURES):
        assert f"| `{exposed(metric)}` |" in SITE["reference/metrics.md"]
    for command in {row.command for row in ROWS}:
        assert f"\n## dataspace {command}\n" in SITE["reference/commands.md"]
    assert len([*codes.known()]) > 40


@pytest.mark.parametrize("module", [plan, tables], ids=lambda module: module.__name__)
def test_its_examples_print_what_they_say(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


@by_page
def test_settings_and_metrics_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    settings = set(re.findall(r"`((?:limits|quota|log|web|slow|tls)\.\w+)`", text))
    assert settings <= {setting.name for setting in SETTINGS}
    metrics = set(re.findall(r"`(dataspace_\w+)", text))
    assert metrics <= {exposed(metric) for metric in all_metrics(FEATURES)}


@by_page
def test_commands_that_a_page_names_are_understood(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    inline = re.findall(
        r"`dataspace ([^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    )
    shells = [line for each in blocks(text) if each.language == "sh" for line in each.text.splitlines()]
    inline += [line.removeprefix("dataspace ") for line in shells if line.startswith("dataspace ")]
    for command in inline:
        check_command(command)


def check_command(command: str) -> None:
    """Raises for a command or an option that there is not; operands may be left out."""
    made = parser(command.split()[0])
    for word in shlex.split(command.replace("…", "")):
        inner = [each for each in made._actions if isinstance(each, argparse._SubParsersAction)]
        if inner and not word.startswith("-"):
            made = inner[0].choices.get(word, made if made.prog.endswith(" log") else None) or pytest.fail(
                f"dataspace {command}: {word} is no command"
            )
        elif word.startswith("--") and word != "--":
            assert word in made._option_string_actions, f"dataspace {command}: {word} is no option"


@by_page
def test_what_can_be_run_is_run(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        installs = block.language == "sh" and all(INSTALLS.match(line) for line in block.text.splitlines())
        assert installs or block.language == "console" or block.title, (
            f"{block.text!r} has no title, so no test runs it"
        )


INSTALLS: Final = re.compile(
    r"python3 -m venv |\S+/pip install '(\.|dataspace-server)\[[\w,]+\]'$|export PATH="
)
"""What the tests of the packages do instead."""
