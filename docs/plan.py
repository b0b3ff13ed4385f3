"""The plan of the site: which page stands where, and what file it is made of.

A page is a file of the repository, which stays the only place of what it says, or is generated
(``docs.reference``).  Recipes are found, not listed.

Always: each page has one place, and each document of the repository is a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[1]

PACKAGES: Final = ("index", "dataspace", "relay", "server", "bench", "tests")

MODULES: Final = (
    "dataspace",
    "dataspace.values",
    "dataspace.patterns",
    "dataspace.text",
    "dataspace.rules",
    "dataspace.actors",
    "dataspace.testing",
    "dataspace.streams",
    "dataspace.log",
    "dataspace.spark",
)
"""The public modules with a page of their own."""

LANGUAGES: Final = {".py": "python", ".mjs": "js", ".sh": "sh", ".html": "html"}
"""Languages of recipes, by how their files end."""

INTERNALS: Final = "Internals"
"""The section for implementers of clients and of the daemon; users need none of its pages."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its title in the navigation, its place in the site, and its file (none: it is generated)."""

    title: str
    place: str
    file: Path | None


def own(title: str, place: str) -> Page:
    """Returns a page that is written for the site."""
    return Page(title, place, TOP / "docs" / "pages" / place)


def beside(title: str, place: str, file: str) -> Page:
    """Returns a page that lies beside the code."""
    return Page(title, place, TOP / file)


def generated(title: str, place: str) -> Page:
    """Returns a page that is made by a program."""
    return Page(title, place, None)


def recipes() -> list[Page]:
    """Returns the recipes: their documents, and the programs as pages of code."""
    folder = TOP / "docs" / "recipes"
    documents = sorted(folder.rglob("*.md"))
    own = sorted([file for file in folder.iterdir() if file.suffix in LANGUAGES])
    programs = [*own, *sorted((folder / "beside").glob("*.py"))]
    return [
        *[
            Page("Overview" if file.stem == "README" else heading(file), _in_recipes(file), file)
            for file in documents
        ],
        *[
            Page(program_title(file), _in_recipes(file), file)
            for file in programs
            if not file.stem.startswith("_")
        ],
    ]


def _in_recipes(file: Path) -> str:
    place = file.relative_to(TOP / "docs").with_suffix(".md")
    return (place.with_name("index.md") if place.stem == "README" else place).as_posix()


def program_title(file: Path) -> str:
    """Returns what a program is called in the navigation.

    >>> program_title(Path("docs/recipes/beside/work_queue_redis.py"))
    'beside: work queue redis'
    """
    said = file.stem.replace("_", " ")
    return f"beside: {said}" if file.parent.name == "beside" else said.capitalize()


def heading(file: Path) -> str:
    """Returns the first heading of a document."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:]
    raise ValueError(f"{file} has no heading; begin it with a line '# …'")


def documents() -> list[Path]:
    """Returns all documents that lie beside the code."""
    inner = [path for name in PACKAGES for path in (TOP / name).rglob("*.md")]
    return sorted([*TOP.glob("*.md"), *inner])


def unlisted(file: Path) -> Page:
    """Returns a page for a document that has no place yet."""
    return Page(heading(file), f"more/{file.relative_to(TOP).as_posix().replace('/', '-').lower()}", file)


def sections() -> list[tuple[str, list[Page]]]:
    """Returns the pages of the site, in order, by section; documents that none lists come last."""
    listed = _listed()
    known = {page.file for _, pages in listed for page in pages}
    more = [file for file in documents() if file not in known]
    return [*listed, ("More", [unlisted(each) for each in more])]


def _listed() -> list[tuple[str, list[Page]]]:
    return [
        (
            "Start",
            [
                own("Home", "index.md"),
                own("Five minutes", "start.md"),
                own("Concepts", "concepts.md"),
                own("Glossary", "glossary.md"),
                own("Words from elsewhere", "words.md"),
                own("Beside other servers", "comparison.md"),
                own("FAQ", "faq.md"),
            ],
        ),
        (
            "Tutorials",
            [
                own("A board of tasks", "tutorials/board.md"),
                own("Rules over devices", "tutorials/rules.md"),
                own("Followers and a stand-by", "tutorials/followers.md"),
                own("From one daemon to three", "tutorials/cluster.md"),
                own("History in files", "tutorials/history.md"),
                own("A drill for operators", "tutorials/drill.md"),
            ],
        ),
        (
            "Guide",
            [
                beside("From Python", "guide/python.md", "dataspace/guide/python.md"),
                beside("Coordination", "guide/coordination.md", "dataspace/COORDINATION.md"),
                beside("Shell", "guide/shell.md", "server/SHELL.md"),
                beside("Work queues", "guide/queues.md", "dataspace/guide/queues.md"),
                beside("Rules and flows", "guide/rules.md", "dataspace/guide/rules.md"),
                beside("Topics", "guide/topics.md", "dataspace/guide/topics.md"),
                beside("Streams", "guide/streams.md", "dataspace/guide/streams.md"),
                beside("Actors", "guide/actors.md", "dataspace/guide/actors.md"),
                beside("Spark", "guide/spark.md", "dataspace/guide/spark.md"),
                beside("HTTP", "guide/http.md", "server/HTTP.md"),
                beside("WebSocket", "guide/web.md", "server/WEB.md"),
                beside("JavaScript", "guide/javascript.md", "server/JAVASCRIPT.md"),
                beside("Inspector", "guide/inspector.md", "server/INSPECTOR.md"),
                beside("The demo of Spark", "guide/demo.md", "examples/flights/DEMO.md"),
            ],
        ),
        ("Recipes", recipes()),
        (
            "Operations",
            [
                own("Overview", "operations/index.md"),
                own("Runbook", "operations/runbook.md"),
                beside("Serving", "operations/serving.md", "dataspace/guide/serving.md"),
                beside("Reference", "operations/serve.md", "server/SERVE.md"),
                beside("Upgrade", "operations/upgrade.md", "server/UPGRADE.md"),
                beside("Security", "operations/security.md", "server/SECURITY.md"),
            ],
        ),
        (
            "Reference",
            [
                generated("Commands", "reference/commands.md"),
                generated("Settings", "reference/settings.md"),
                generated("Metrics and alerts", "reference/metrics.md"),
                generated("Error codes", "reference/codes.md"),
                *[generated(name, f"reference/api/{name}.md") for name in MODULES],
                beside("Text and JSON", "reference/text.md", "index/TEXT.md"),
                beside("Rules", "reference/rules.md", "dataspace/RULES.md"),
                beside("Actors", "reference/actors.md", "dataspace/ACTORS.md"),
                beside("Groups", "reference/groups.md", "relay/GROUPS.md"),
                beside("Topics", "reference/topics.md", "relay/TOPICS.md"),
                beside("Streams", "reference/streams.md", "relay/STREAMS.md"),
                beside("Spark source and sink", "reference/spark.md", "relay/spark/SPARK.md"),
            ],
        ),
        (
            "Project",
            [
                beside("Read me", "project/readme.md", "README.md"),
                beside("Guarantees", "project/guarantees.md", "GUARANTEES.md"),
                beside("Changes", "project/changes.md", "CHANGELOG.md"),
            ],
        ),
        (
            INTERNALS,
            [
                beside("Architecture", "internals/architecture.md", "ARCHITECTURE.md"),
                beside("Wire protocol", "internals/wire.md", "dataspace/WIRE.md"),
                generated("Packets", "internals/packets.md"),
                beside("Test vectors", "internals/conformance.md", "tests/conformance/README.md"),
                beside("The log", "internals/log.md", "relay/LOG.md"),
                beside("The archive", "internals/archive.md", "relay/ARCHIVE.md"),
                beside("The index", "internals/index-how.md", "index/HOWITWORKS.md"),
                beside("Figures", "internals/figures.md", "bench/README.md"),
                beside("Simulation", "internals/simulation.md", "tests/simulation/README.md"),
            ],
        ),
    ]
