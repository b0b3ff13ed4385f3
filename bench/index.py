"""How fast is the index, beside a plain transcription of the document that it comes from?

Both are given the same values and patterns in the same process, in turn, and the best of the rounds counts;
``ratio`` is ours ÷ transcription.  Values are made before the clock starts and each is used once, as a
daemon's are, so that what our strict keys cost is in the figures; the observers are met in turn, and each
has a callback of its own.  Rates are in CPU time of the process, with the collector of cycles off.

    pairs_per_s_N, messages_per_s_N      N observers of says($i const, $): assert and retract, and messages
    types_pairs_per_s, types_…           200 record types × 5 patterns, two or three of which match
    deep_pairs_per_s, deep_…             the document's x(y(3, 4), $v, z(_, w(), _), _)
    nobody_pairs_per_s, nobody_…         values that no observer is interested in, beside 100 that are not met
    shapes_N_…, shapes_N_…_ratio         N patterns of one label with wildcards in different places of 12, of
                                         which none matches; the ratio is to the trie alone, without a net
    depth_N_…, width_N_…                 256 such patterns, N levels down or with N places (16 with 4)
    handlers_per_s                       handlers installed and removed, of the N = 100 kind
    bytes_per_assertion                  of three small fields, beyond the value itself, beside 10 patterns
    bytes_per_handler                    of says($i const, $)
    bytes_per_shape                      of the 1 024 patterns of shapes_N: a handler with a group of its own

With ``--compiled`` the package is compiled first, into a directory of its own, and measured in a process of
its own beside the transcription there; those figures begin with ``compiled_``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from random import Random
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent

if __name__ == "index" or (__name__ == "__main__" and Path(sys.path[0]).resolve() == HERE):
    # Benchmarks are run with this directory first on the path, where this file is found as ``index``, by the
    # other ones as well.  Whoever imports that wants the package: let it be found.
    beyond = [at for at in sys.path if Path(at).resolve() != HERE]
    spec = PathFinder.find_spec("index", beyond)
    assert spec is not None and spec.loader is not None, f"no package index in {beyond}"
    sys.modules["index"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["index"])

if __name__ != "index":
    from bench import _transcription as transcription
    from bench._figures import command_line, show
    from index.patterns.patterns import DISCARD, capture, skeleton
    from index.trie.trie import Event, Index
    from index.values.values import COMPILED, Record, Value

CHUNK: Final = 2_000
"""Values made before each reading of the clock: few enough to be as warm as those that were just received."""

FEW: Final = 100
"""The same where a value may take milliseconds."""


class Variant:
    """One index with what it takes to fill it; patterns and values come as nested tuples."""

    def __init__(self, index: Any, skeleton_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
        self.index = index
        self.skeleton_of = skeleton_of
        self.value_of = value_of

    def observe(self, pattern: Any) -> Callable[[], None]:
        """Installs a callback of its own for a pattern: what removes it."""
        form = self.skeleton_of(pattern)
        told = _callback()
        self.index.add_handler(form, told)
        return lambda: self.index.remove_handler(form, told)

    def pairs(self, values: list[Any]) -> float:
        add, remove = self.index.add, self.index.remove
        start = time.process_time()
        for value in values:
            add(value)
            remove(value)
        return time.process_time() - start

    def messages(self, values: list[Any]) -> float:
        send = self.index.send
        start = time.process_time()
        for value in values:
            send(value)
        return time.process_time() - start


def _callback() -> Callable[[Event, tuple[Value, ...]], None]:
    def told(event: Event, captures: tuple[Value, ...]) -> None:
        pass

    return told


def ours(index: Index | None = None) -> Variant:
    index = Index() if index is None else index
    return Variant(index, lambda pattern: skeleton(_ours(pattern, capture())), lambda value: _ours(value))


def theirs() -> Variant:
    return Variant(transcription.Index(), lambda p: transcription.skeleton(_theirs(p)), lambda value: value)


ANY: Final = object()
CAPTURED: Final = object()


def _ours(said: Any, captured: Value = None) -> Value:
    if said is ANY:
        return DISCARD
    if said is CAPTURED:
        return captured
    if isinstance(said, tuple):
        return Record.of(said[0], tuple([_ours(part, captured) for part in said[1:]]))
    return said  # type: ignore[no-any-return]  # an atom


def _theirs(said: Any) -> Any:
    if said is ANY:
        return transcription.DISCARD
    if said is CAPTURED:
        return transcription.CAPTURE
    return tuple([_theirs(part) for part in said]) if isinstance(said, tuple) else said


# -- rates --------------------------------------------------------------------------------------------


def compare(
    patterns: Sequence[Any], said: Callable[[int], Any], rounds: int, chunks: int
) -> Iterator[tuple[str, float, float]]:
    """Pairs and messages per second, as (what, ours, theirs)."""
    variants = {"ours": ours(), "theirs": theirs()}
    for variant in variants.values():
        for pattern in patterns:
            variant.observe(pattern)
    best: dict[tuple[str, str], float] = {}
    count = 0
    for _ in range(rounds * chunks):
        for name, variant in variants.items():
            for what in ("pairs", "messages"):
                values = [variant.value_of(said(count + n)) for n in range(CHUNK)]
                spent = getattr(variant, what)(values)
                best[name, what] = min(best.get((name, what), spent), spent)
        count += CHUNK
    for what in ("pairs", "messages"):
        yield what, CHUNK / best["ours", what], CHUNK / best["theirs", what]


def observers(n: int) -> tuple[list[Any], Callable[[int], Any]]:
    users = [f"user{i}" for i in range(n)]
    return [("says", user, CAPTURED) for user in users], lambda i: ("says", users[i % n], f"hello {i}")


def types() -> tuple[list[Any], Callable[[int], Any]]:
    """200 record types × 5 patterns."""
    patterns: list[Any] = []
    for n in range(200):
        label = f"type{n}"
        patterns += [
            (label, CAPTURED, CAPTURED),
            (label, f"id{n}", CAPTURED),
            (label, "nobody", CAPTURED),
            (label, ANY, "ready"),
            (label, CAPTURED, "never"),
        ]
    return patterns, lambda i: (f"type{i % 200}", f"id{i % 400}", f"state {i}")


def deep() -> tuple[list[Any], Callable[[int], Any]]:
    pattern = ("x", ("y", 3, 4), CAPTURED, ("z", ANY, ("w",), ANY), ANY)
    return [pattern], lambda i: ("x", ("y", 3, 4), f"v{i}", ("z", 1, ("w",), 2), 3)


def nobody() -> tuple[list[Any], Callable[[int], Any]]:
    return observers(100)[0], lambda i: ("other", f"user{i % 100}", f"hello {i}")


def shapes(count: int, places: int = 12, depth: int = 1) -> tuple[list[Any], Callable[[int], Any]]:
    """Patterns with a constant or a wildcard at each place, so many levels down, and values without the
    constant."""
    chance = Random(1)
    chosen = (
        range(count)
        if count <= 1 << places <= 1 << 12
        else [chance.getrandbits(places) for _ in range(count)]
    )

    def nested(levels: list[Any]) -> Any:
        found: Any = ("levels", *levels)
        for _ in range(depth - 1):
            found = ("nest", found)
        return found

    patterns = [
        ("mqtt", nested([ANY if bits >> at & 1 else "q" for at in range(places)]), CAPTURED)
        for bits in chosen
    ]
    return patterns, lambda i: ("mqtt", nested([f"level{at}" for at in range(places)]), i)


def compare_shapes(name: str, case: tuple[list[Any], Callable[[int], Any]], rounds: int) -> dict[str, float]:
    """Returns pairs and messages per second with a net, and the ratio to the trie alone."""
    patterns, said = case
    variants = {"net": ours(), "trie": ours(Index(in_trie=len(patterns)))}
    for variant in variants.values():
        for pattern in patterns:
            variant.observe(pattern)
    best: dict[tuple[str, str], float] = {}
    for number in range(rounds):
        for by, variant in variants.items():
            for what in ("pairs", "messages"):
                values = [variant.value_of(said(number * FEW + n)) for n in range(FEW)]
                spent = getattr(variant, what)(values)
                best[by, what] = min(best.get((by, what), spent), spent)
    figures: dict[str, float] = {}
    for what in ("pairs", "messages"):
        figures[f"{name}_{what}_per_s"] = FEW / best["net", what]
        figures[f"{name}_{what}_ratio"] = best["trie", what] / best["net", what]
    return figures


def handlers_per_s(variant: Variant, count: int) -> float:
    patterns = [("says", f"user{i}", CAPTURED) for i in range(count)]
    start = time.process_time()
    removers = [variant.observe(pattern) for pattern in patterns]
    for remove in removers:
        remove()
    return count / (time.process_time() - start)


# -- memory -------------------------------------------------------------------------------------------


def _bytes_of(change: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    held = change()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del held
    return size


def bytes_per_assertion(count: int) -> float:
    """Beyond the value: a record of three small fields, beside ten patterns, three of which match it."""
    variant = ours()
    for n in range(8):
        variant.observe(("reading", f"room{n}", CAPTURED, ANY))
    variant.observe(("reading", ANY, CAPTURED, CAPTURED))
    variant.observe(("reading", CAPTURED, ANY, "ok"))
    values = [variant.value_of(("reading", f"room{n % 8}", n, "ok")) for n in range(count)]
    return _bytes_of(lambda: [variant.index.add(value) for value in values].clear()) / count


def bytes_per_handler(count: int) -> float:
    variant = ours()
    forms = [variant.skeleton_of(("says", f"user{n}", CAPTURED)) for n in range(count)]
    told = _callback()
    variant.observe(("says", "one", CAPTURED))
    return _bytes_of(lambda: [variant.index.add_handler(form, told) for form in forms].clear()) / count


def bytes_per_shape(count: int) -> float:
    variant = ours()
    forms = [variant.skeleton_of(pattern) for pattern in shapes(count)[0]]
    told = _callback()
    return _bytes_of(lambda: [variant.index.add_handler(form, told) for form in forms].clear()) / count


# -- the run ------------------------------------------------------------------------------------------


def measure(rounds: int, sizes: Sequence[int], chunks: int, shape_counts: Sequence[int]) -> dict[str, float]:
    figures: dict[str, float] = {}
    gc.disable()
    for n in sizes:
        # enough chunks that every observer is met
        for what, mine, other in compare(*observers(n), rounds, max(chunks, -(-n // CHUNK) // rounds)):
            figures[f"{what}_per_s_{n}"] = mine
            figures[f"transcription_{what}_per_s_{n}"] = other
            figures[f"{what}_ratio_{n}"] = mine / other
        gc.collect()
    for name, case in ("types", types()), ("deep", deep()), ("nobody", nobody()):
        for what, mine, other in compare(*case, rounds, chunks):
            figures[f"{name}_{what}_per_s"] = mine
            figures[f"{name}_{what}_ratio"] = mine / other
    for n in shape_counts:
        figures |= compare_shapes(f"shapes_{n}", shapes(n), rounds)
    for n in (2, 8, 32):
        figures |= compare_shapes(f"depth_{n}", shapes(shape_counts[1], depth=n), rounds)
    for n in (4, 64):
        figures |= compare_shapes(f"width_{n}", shapes(min(shape_counts[1], 1 << n), n), rounds)
    count = 10_000
    both = [(handlers_per_s(ours(), count), handlers_per_s(theirs(), count)) for _ in range(rounds)]
    figures["handlers_per_s"] = max(mine for mine, _ in both)
    figures["handlers_ratio"] = figures["handlers_per_s"] / max(other for _, other in both)
    gc.enable()
    figures["bytes_per_assertion"] = bytes_per_assertion(20_000)
    figures["bytes_per_handler"] = bytes_per_handler(20_000)
    figures["bytes_per_shape"] = bytes_per_shape(shape_counts[-1])
    return figures


def measure_compiled(arguments: Sequence[str]) -> dict[str, float]:
    """The same figures of the compiled package, which is built for it."""
    import relocate  # only a checkout has it; the copy of this file that measures the compiled one does not
    from bench._builds import install_compiled

    with tempfile.TemporaryDirectory(prefix="dataspace-compiled-") as place:
        site = Path(place, "site")
        shutil.copytree(HERE, Path(place, "bench"))
        relocate.rewrite_files(Path(place, "bench"), relocate.modules(HERE.parent))
        print("compiling …", flush=True)
        install_compiled(site)
        done = subprocess.run(
            [sys.executable, "-m", "bench.index", "--json", "--expect-compiled", *arguments],
            check=True,
            env={**os.environ, "PYTHONPATH": str(site)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=place,
        )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {f"compiled_{name}": value for name, value in figures.items()}


def main() -> None:
    arguments = command_line(__doc__, rounds=5, quick="one round, up to 10 000 observers")
    arguments.add_argument("--compiled", action="store_true", help="measure the compiled package as well")
    arguments.add_argument("--expect-compiled", action="store_true", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.expect_compiled and not COMPILED:
        raise SystemExit("the compiled package was not found")
    chosen = ["--quick"] if args.quick else ["--rounds", str(args.rounds)]
    if args.quick:
        figures = measure(1, [1, 100, 10_000], 2, [16, 64])
    else:
        figures = measure(args.rounds, SIZES, 6, SHAPES)
    if args.compiled:
        figures |= measure_compiled(chosen)
    show(figures, as_json=args.json)


SIZES: Final = [1, 100, 10_000, 100_000]
SHAPES: Final = [16, 256, 1_024, 4_096]

if __name__ == "__main__":
    main()
