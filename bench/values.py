"""What do values cost to make, to key, to order and to write, and do crafted ones cost more than others?

Rates are values a second, of a fact of three small fields.  A flood is a hundred thousand values that make a
plain table of Python slow; ``flood_ratio_NAME`` is the time to key and look up all of it in a table ÷ that
of as many ordinary values of the same form, in the same run, interleaved.  None may be above 2.

    freeze_per_s, key_per_s, order_key_per_s, unparse_per_s, parse_per_s, to_json_per_s, from_json_per_s
    flood_ratio_same_remainder    integers with the same hash in Python
    flood_ratio_same_low_bits     integers that begin at the same slot
    flood_ratio_chained           integers laid out as a wall through the slots of the table
    flood_ratio_sequences         sequences of -1 and -2
    flood_ratio_records           records of records of them
    flood_ratio_maps              maps of both
    flood_ratio_index_NAME        the same for facts through an index that observes them, and out again
    flood_ratio_space_NAME        the same through the turns of a space
    flood_ratio_codec_NAME        maps with such keys through the codec, both ways
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from bench._figures import command_line, show
from dataspace.codec import pack, unpack
from dataspace.kernel.actions import ASSERT, RETRACT
from dataspace.kernel.space import Space
from index.patterns.patterns import capture, skeleton
from index.patterns.text import parse, unparse
from index.trie.trie import Index
from index.values.freezing import freeze
from index.values.jsons import from_json, to_json
from index.values.values import Map, Record, Value, key, order_key
from tests.index import floods

COUNT: Final = 100_000

Work = Callable[[list[Value]], None]


def _seconds(work: Callable[[], None]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def _fact(n: int) -> Record:
    return Record("reading", f"d{n % 1000}", n, 21.5)


def rates(count: int, rounds: int) -> dict[str, float]:
    """Values a second, for each thing that is done to them."""
    plain = [["reading", f"d{n % 1000}", n, {"k": 21.5}] for n in range(count)]
    texts = [unparse(_fact(n)) for n in range(count)]
    jsons = [to_json(_fact(n)) for n in range(count)]
    works: dict[str, Callable[[list[Value]], None]] = {
        "freeze": lambda _: _each(freeze, plain),
        "key": lambda fresh: _each(key, fresh),
        "order_key": lambda fresh: _each(order_key, fresh),
        "unparse": lambda fresh: _each(unparse, fresh),
        "parse": lambda _: _each(parse, texts),
        "to_json": lambda fresh: _each(to_json, fresh),
        "from_json": lambda _: _each(from_json, jsons),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            fresh: list[Value] = [_fact(n) for n in range(count)]
            best[name] = min(best[name], _seconds(partial(work, fresh)))
    return {f"{name}_per_s": count / seconds for name, seconds in best.items()}


def _each(call: Callable[..., object], things: Sequence[object]) -> None:
    for thing in things:
        call(thing)


# -- floods -------------------------------------------------------------------------------------------


def _ordinary_sequences(count: int) -> list[Value]:
    chance, width = Random(2), count.bit_length()
    return [(*[-1 - chance.getrandbits(1) for _ in range(width)], n) for n in range(count)]


def _ordinary_records(count: int) -> list[Value]:
    return [Record("p", Record("q", part), 1) for part in _ordinary_sequences(count)]


def _ordinary_maps(count: int) -> list[Value]:
    chance = Random(3)
    return [Map([(chance.getrandbits(50), -1), (-1, chance.getrandbits(40))]) for _ in range(count)]


FLOODS: Final[dict[str, tuple[floods.Flood, floods.Flood]]] = {
    "same_remainder": (floods.same_remainder, lambda count: [n << 60 | 1 for n in range(count)]),
    "same_low_bits": (floods.same_low_bits, floods.ordinary),
    "chained": (floods.chained, floods.ordinary),
    "sequences": (floods.minus_one_and_two, _ordinary_sequences),
    "records": (floods.nested_records, _ordinary_records),
    "maps": (floods.maps_of_floods, _ordinary_maps),
}


def _table(values: list[Value]) -> None:
    made = {key(value): value for value in values}
    for value in values:
        made[key(value)]


def _index(values: list[Value]) -> None:
    index = Index()
    for pattern in (Record("p", capture()), Record("p", 0), Record("p", "never", capture())):
        index.add_handler(skeleton(pattern), _deaf)
    facts = [Record.of("p", (value,)) for value in values]
    _each(index.add, facts)
    _each(index.remove, facts)


def _deaf(_event: object, _row: object) -> None:
    pass


def _space(values: list[Value]) -> None:
    space = Space("s")
    step = 1_000
    for start in range(0, len(values), step):
        some = values[start : start + step]
        space.commit("me", [(ASSERT, start + n, Record.of("p", (value,))) for n, value in enumerate(some)], 0)
    for start in range(0, len(values), step):
        space.commit("me", [(RETRACT, n) for n in range(start, min(start + step, len(values)))], 0)


def _codec(values: list[Value]) -> None:
    for start in range(0, len(values), 5_000):
        some = values[start : start + 5_000]
        unpack(pack(Map.of([(value, 1) for value in some])))


def flood_ratios(count: int, rounds: int) -> dict[str, float]:
    """The time of each flood to that of ordinary values of its form."""
    ways: dict[str, tuple[Work, Sequence[str]]] = {
        "": (_table, list(FLOODS)),
        "index_": (_index, list(FLOODS)),
        "space_": (_space, ["same_remainder", "chained", "sequences"]),
        "codec_": (_codec, ["same_remainder", "chained"]),
    }
    ratios = {}
    for way, (work, names) in ways.items():
        for name in names:
            flood, ordinary = FLOODS[name]
            best = [float("inf"), float("inf")]
            for _ in range(rounds):
                for at, make in enumerate((flood, ordinary)):
                    best[at] = min(best[at], _seconds(partial(work, make(count))))
            ratios[f"flood_ratio_{way}{name}"] = best[0] / best[1]
    return ratios


def main() -> None:
    """Prints the figures."""
    args = command_line(__doc__).parse_args()
    count, rounds = (4_000, 1) if args.quick else (COUNT, args.rounds)
    show({**rates(min(count, 20_000), rounds), **flood_ratios(count, rounds)}, as_json=args.json)


if __name__ == "__main__":
    main()
