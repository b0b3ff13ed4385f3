"""Figures of the sources: ``python -m tests.structure`` prints them, ``tests/test_structure.py`` holds them.

``python -m tests.structure protocols`` lists what a figure counts; so do ``names``, ``parameters``,
``words``, ``objects``, ``outside`` and ``methods``.

Everything but the walks is computed from the files alone. The methods, so that anyone can judge a
figure:

- *lines, files*: all lines of the ``.py`` files of the four packages.
- *Protocols*: a class of the product is an implementation of a Protocol if it has all members, its own
  or inherited ones, and defines at least one of them itself. A member that is a method must accept the
  Protocol's positional parameters and be ``async`` if the Protocol's is; annotations with different
  built-in types exclude each other. A class that names the Protocol as a base is an implementation as
  well. A *fake* is such a class in ``tests`` or ``bench``. Protocols with ``__call__`` alone describe
  functions, so their implementations are not counted. A small Protocol (one attribute ``name``) matches
  classes that it never meets: the true number of Protocols with one implementation is at least the one
  given here.
- *names used twice*: public classes at the top of a module, without Protocols, in more than one file.
- *parameters*: without ``self`` and ``cls``, and without keyword-only ones that have a default.
- *imports and module docstrings*: lines of the imports at the top of a file and of its docstring.
- *code*: lines without docstrings, comments, empty lines and imports at the top of a file; of the core, and
  of each *wing*, which is a capability that the core does not know (``tests/budgets.py``).
- *files outside*: files of the product outside the folder of a wing that are part of it or import it; the
  client's half and the tables of names, verbs and settings are not counted.
- *largest objects*: attributes of a class of the server with those of its bases, without properties.
- *floors*: rooms of the server that import each other in the longest chain.
- *walks*: files of the product in which a function was entered while a daemon in this process served a
  client in a process of its own, from the client's request to its answer (``tests/walks.py``).
"""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import trio

from tests import budgets
from tests.sources import FUNCTIONS, PACKAGES, TOP, File, Function, files, header_lines, product, statements
from tests.test_imports import arrows, room
from tests.walks import walked

MANY_PARAMETERS: Final = 6

# -- sizes -----------------------------------------------------------------------------------------


def headers() -> float:
    """Returns the share of imports and module docstrings in all lines of the product, in percent."""
    return 100 * sum(map(header_lines, product())) / sum(each.lines for each in product())


def parameters(function: Function) -> int:
    """Returns how many arguments a function has: without ``self``, and keyword-only ones with a default."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    kept = [name for at, name in enumerate(names) if at or name not in ("self", "cls")]
    return len(kept) + sum(default is None for default in given.kw_defaults)


def long_signatures() -> list[str]:
    """Returns the functions with more than six parameters, as ``file:line name``."""
    return [
        f"{file.name}:{node.lineno} {node.name} ({parameters(node)})"
        for file in product()
        for node in ast.walk(file.tree)
        if isinstance(node, FUNCTIONS) and parameters(node) > MANY_PARAMETERS
    ]


def names_used_twice() -> dict[str, list[str]]:
    """Returns the names of public classes that several files define, with these files."""
    found = defaultdict[str, list[str]](list)
    for file in product():
        for node in file.tree.body:
            if (
                isinstance(node, ast.ClassDef)
                and not node.name.startswith("_")
                and "Protocol" not in map(name_of, node.bases)
            ):
                found[node.name].append(file.name)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


# -- Protocols -------------------------------------------------------------------------------------


@dataclass
class Class:
    """A class with its members: methods and attributes, by name; a name without a definition is None."""

    file: str
    name: str
    bases: list[str]
    members: dict[str, Function | None]
    attributes: frozenset[str] = frozenset()
    """The names that are set on the object or annotated in the class, without functions and properties."""

    @property
    def protocol(self) -> bool:
        return "Protocol" in self.bases


@dataclass(frozen=True)
class Port:
    """A Protocol with the classes that have all its members."""

    place: str
    product: tuple[str, ...]
    fakes: tuple[str, ...]
    callable: bool
    """True if it describes a function."""

    @property
    def single(self) -> bool:
        """True if one class of the product implements it."""
        return not self.callable and len(self.product) == 1

    @property
    def lonely(self) -> bool:
        """True if one class implements it, and no test has a fake."""
        return self.single and not self.fakes


def name_of(node: ast.expr) -> str:
    """Returns the last name of a base: ``Protocol`` of ``typing.Protocol[T]``."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def property_like(function: Function) -> bool:
    """True if a function is read as an attribute."""
    names = {name_of(each) for each in function.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def read_class(file: File, node: ast.ClassDef) -> Class:
    """Returns a class with the members that it defines itself, those set on ``self`` included."""
    members: dict[str, Function | None] = {}
    for each in node.body:
        if isinstance(each, FUNCTIONS):
            members[each.name] = None if property_like(each) else each
            for inner in ast.walk(each):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Store)
                    and name_of(inner.value) == "self"
                ):
                    members.setdefault(inner.attr, None)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            members[each.target.id] = None
        elif isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name):
                    members[target.id] = None
    functions = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
    own = frozenset(name for name, member in members.items() if member is None and name not in functions)
    return Class(file.name, node.name, [name_of(each) for each in node.bases], members, own)


def classes(*folders: str) -> list[Class]:
    """Returns all classes of some folders."""
    return [
        read_class(file, node)
        for file in files(*folders)
        for node in statements(file.tree)
        if isinstance(node, ast.ClassDef)
    ]


def inherited(
    each: Class, by_name: Mapping[str, list[Class]], seen: frozenset[str] = frozenset()
) -> dict[str, Function | None]:
    """Returns the members of a class and its bases, the class's own first."""
    found: dict[str, Function | None] = {}
    for base in each.bases:
        if base not in seen:
            near = sorted(by_name.get(base, []), key=lambda other: -len(_common(other.file, each.file)))
            for other in near[:1]:
                found = inherited(other, by_name, seen | {base}) | found
    return found | each.members


def _common(one: str, other: str) -> list[str]:
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return [left for left, right in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def fits(wanted: Function | None, given: Function | None) -> bool:
    """True if a member can stand for a Protocol's, as far as the two texts tell."""
    if wanted is None:
        return given is None
    if given is None:
        return True  # an attribute that holds a function
    if isinstance(wanted, ast.AsyncFunctionDef) != isinstance(given, ast.AsyncFunctionDef):
        return _awaitable(wanted) == _awaitable(given)
    need = wanted.args.posonlyargs + wanted.args.args
    have = given.args.posonlyargs + given.args.args
    least = len(have) - len(given.args.defaults)
    if len(need) < least or (len(need) > len(have) and not given.args.vararg):
        return False
    names = {each.arg for each in (*given.args.kwonlyargs, *have)}
    if not given.args.kwarg and any(each.arg not in names for each in wanted.args.kwonlyargs):
        return False
    pairs = [(one.annotation, other.annotation) for one, other in zip(need[1:], have[1:], strict=False)]
    return all(itertools.starmap(_alike, pairs)) and _alike(wanted.returns, given.returns)


def _awaitable(function: Function) -> bool:
    return isinstance(function, ast.AsyncFunctionDef) or "Awaitable" in ast.unparse(
        function.returns or ast.Constant("")
    )


def _alike(one: ast.expr | None, other: ast.expr | None) -> bool:
    """False if both are plain built-in types, and different ones."""
    texts = {ast.unparse(each) for each in (one, other) if each is not None}
    plain = {"int", "str", "bytes", "bool", "float", "None", "object"}
    return len(texts) < 2 or not texts <= plain or "object" in texts


@cache
def ports() -> tuple[Port, ...]:
    """Returns every Protocol of the product with the classes that have its members."""
    mine, theirs = classes(*PACKAGES), classes("tests", "bench")
    by_name = defaultdict[str, list[Class]](list)
    for each in (*mine, *theirs):
        by_name[each.name].append(each)
    whole = {id(each): inherited(each, by_name) for each in (*mine, *theirs)}
    found = []
    for port in mine:
        if port.protocol:
            wanted = whole[id(port)]
            inner = [
                [
                    f"{each.file}:{each.name}"
                    for each in some
                    if implements(each, whole[id(each)], port, wanted)
                ]
                for some in (mine, theirs)
            ]
            found.append(
                Port(
                    f"{port.file}:{port.name}", tuple(inner[0]), tuple(inner[1]), set(wanted) == {"__call__"}
                )
            )
    return tuple(found)


def implements(
    each: Class, members: Mapping[str, Function | None], port: Class, wanted: Mapping[str, Function | None]
) -> bool:
    """True if a class has all members of a Protocol, and defines one of them itself."""
    if each.protocol or not wanted or not wanted.keys() & each.members.keys():
        return False
    if port.name in each.bases:
        return True
    return wanted.keys() <= members.keys() and all(fits(wanted[name], members[name]) for name in wanted)


# -- objects ---------------------------------------------------------------------------------------


def attributes(each: Class, by_name: Mapping[str, list[Class]]) -> int:
    """Returns how many attributes an object of a class has, with those of its bases, without properties."""
    mine = len(each.attributes)
    near = [
        min(by_name[base], key=lambda other: -len(_common(other.file, each.file)))
        for base in each.bases
        if base in by_name
    ]
    return mine + sum(attributes(other, by_name) for other in near if other is not each)


def large_objects() -> list[tuple[int, str]]:
    """Returns the classes of the server by their attributes, the largest first, without bases of others."""
    by_name = defaultdict[str, list[Class]](list)
    found = classes("server")
    for each in found:
        by_name[each.name].append(each)
    bases = {base for each in found for base in each.bases}
    counted = [
        (attributes(each, by_name), f"{each.file}:{each.name}") for each in found if each.name not in bases
    ]
    return sorted(counted, reverse=True)


def floors() -> int:
    """Returns how many rooms of the server import each other in the longest chain."""
    above = defaultdict[str, set[str]](set)
    for name, targets in arrows().items():
        if name.startswith("server/"):
            above[room(name)] |= {room(to) for to in targets if to.startswith("server/")} - {room(name)}

    @cache
    def height(of: str) -> int:
        return 1 + max(map(height, above[of]), default=0)

    return max(map(height, [*above]))


def methods() -> dict[str, int]:
    """Returns how many classes of the product have a method of a name, the most frequent first."""
    counts = Counter(
        name
        for each in classes(*PACKAGES)
        for name, member in each.members.items()
        if member is not None and not name.startswith("__")
    )
    return dict(counts.most_common())


# -- words -----------------------------------------------------------------------------------------


def markdown_words() -> dict[str, int]:
    """Returns the words of each Markdown document in the repository, as ``wc -w`` counts them."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, check=True, capture_output=True, text=True)
    return {
        name: len((TOP / name).read_text().split())
        for name in listed.stdout.splitlines()
        if (TOP / name).exists()
    }


def room_sizes() -> dict[str, int]:
    """Returns how many files each folder of the product has, without ``__init__.py``."""
    counts = defaultdict[str, int](int)
    for file in product():
        folder, _, name = file.name.rpartition("/")
        counts[folder] += name != "__init__.py"
    return dict(counts)


# -- the table -------------------------------------------------------------------------------------


def table() -> Iterator[tuple[str, str]]:
    """Yields each figure with its name."""
    yield "source lines / files", f"{sum(each.lines for each in product())} / {len(product())}"
    for name, lines in budgets.code().items():
        yield f"code of {name}, and its budget", f"{lines} / {budgets.budgets()[name].code}"
    for wing in budgets.HELD:
        yield f"files of {wing} outside of {budgets.home_of(wing)}", str(len(budgets.outside(wing)))
    yield (
        "largest objects of the server by attributes",
        ", ".join(str(count) for count, _ in large_objects()[:3]),
    )
    yield "floors of the server", str(floors())
    yield (
        "Protocols / with one implementation / and no fake",
        f"{len(ports())} / {sum(each.single for each in ports())} / {sum(each.lonely for each in ports())}",
    )
    for name, walk in trio.run(walked).items():
        yield f"files that a {name} passes", str(len(walk))
    yield "public class names used twice", str(len(names_used_twice()))
    yield f"functions with more than {MANY_PARAMETERS} parameters", str(len(long_signatures()))
    yield "imports and module docstrings, share of lines", f"{headers():.1f} %"
    yield "words of Markdown", str(sum(markdown_words().values()))


LISTS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "protocols": lambda: [f"{each.place} {each.product[0]}" for each in ports() if each.single],
    "names": lambda: [f"{name}: {' '.join(places)}" for name, places in names_used_twice().items()],
    "parameters": long_signatures,
    "words": lambda: [f"{count} {name}" for name, count in markdown_words().items()],
    "objects": lambda: [f"{count} {name}" for count, name in large_objects()[:20]],
    "outside": lambda: [f"{wing}: {name}" for wing in budgets.HELD for name in budgets.outside(wing)],
    "methods": lambda: [f"{count} {name}" for name, count in methods().items() if count > 9],
}
"""What stands behind a figure: ``python -m tests.structure names`` lists it."""


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(*LISTS[wanted](), sep="\n")
    for title, figure in () if sys.argv[1:] else table():
        print(f"{title:52}{figure}")
