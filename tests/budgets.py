"""Whose code a file is: of the core, or of one *wing*, a capability that the core does not know.

``BUDGETS`` is the one table: lines of code that each may have, and its places. A commit that makes one larger
changes the table, and its message says why; one that makes it smaller lowers the figure.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final, NamedTuple

from tests.sources import code_lines, import_lines, product
from tests.test_imports import arrows

BUDGETS: Final = """
core     44130  index/ dataspace/ relay/ server/
groups    3853  relay/groups/ server/groups/
topics    4125  dataspace/topics/ relay/topics/ relay/journal/ relay/store/sqlite/topics.py relay/store/postgres/topics.py server/topics/
archive   4209  relay/archive/ relay/objects/ server/archiving/
cluster   3441  relay/store/postgres/ server/cluster/
hosting   3297  dataspace/actors/ dataspace/running/ server/hosting/ server/config/hosted.py
tracing    433  server/tracing/ server/spaces/traces.py
copies    1338  relay/backup/ server/copies/
turns     1339  server/turns/ server/spaces/turns/ server/owners/publishers.py
web       2754  server/web/ server/cli/once/inspector.py
streams   2792  dataspace/streams/
flows     1911  dataspace/flows/
spark     4553  relay/spark/ dataspace/spark/
"""  # noqa: E501  # a table
"""Lines of code of the core and of each wing, with its places: the longest one says whose a file is."""

BELOW: Final = "relay/"
"""Where a wing's files, objects and tables lie: rooms of its own there are not outside of it."""

CLIENT: Final = "dataspace/"
"""Where a wing's client lies: it never loads a server."""

TABLES: Final = frozenset(
    [
        "server/config/model.py",
        "server/cli/table.py",
        "server/web/routes/table.py",
    ]
)
"""Tables of names, which have a row for each capability."""

EXCEPTIONS: Final = frozenset([("groups", "topics"), ("archive", "topics"), ("spark", "archive")])
"""Wings that may import another one: what divides or archives topics, and what reads archives."""

HELD: Final = ("groups", "topics", "archive", "cluster")
"""The wings whose files outside of their folder are counted."""


class Budget(NamedTuple):
    """One row of the table."""

    name: str
    code: int
    places: tuple[str, ...]


@cache
def budgets() -> dict[str, Budget]:
    """Returns the rows by name."""
    rows = [line.split() for line in BUDGETS.splitlines() if line]
    return {name: Budget(name, int(code), tuple(places)) for name, code, *places in rows}


@cache
def owner_of(file: str) -> str:
    """Returns whose a file of the product is, by the longest of all places that it is in."""
    found = {
        place: each.name for each in budgets().values() for place in each.places if file.startswith(place)
    }
    return found[max(found, key=len)]


@cache
def code() -> dict[str, int]:
    """Returns the lines of code of each row, without imports."""
    counts = Counter(dict.fromkeys(budgets(), 0))
    for file in product():
        counts[owner_of(file.name)] += code_lines(file) - import_lines(file)
    return dict(counts)


def home_of(wing: str) -> str:
    """Returns the folder of a wing on the server's side; its largest one, while it has several."""
    sizes = Counter[str]()
    for file in product():
        if owner_of(file.name) == wing and file.name.startswith("server/"):
            sizes["/".join(file.name.split("/")[:2]) + "/"] += file.lines
    return sizes.most_common(1)[0][0]


def outside(wing: str) -> list[str]:
    """Returns the files that are part of a wing, or import it, outside of its rooms and of the client."""
    below = [each for each in budgets()[wing].places if each.startswith(BELOW) and each.endswith("/")]
    rooms = (home_of(wing), CLIENT, *below)
    mine = {file.name for file in product() if owner_of(file.name) == wing}
    known = {name for name, targets in arrows().items() if targets.keys() & mine}
    return sorted(
        name
        for name in mine | known
        if not name.startswith(rooms)
        and name not in TABLES
        and not name.endswith("/__init__.py")
        and (owner_of(name), wing) not in EXCEPTIONS
    )
