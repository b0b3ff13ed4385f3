"""The layout of graphs in the inspector: what feeds is to the left, boxes lie apart, a tree is in order."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

import server
from tests.conformance.driving import node

PAGE: Final = Path(server.__file__).parent / "web" / "inspector"

SCRIPT: Final = """
import { layout, nextBox } from "./graph.js";

// a generator of numbers that are the same in each run
let seed = 7;
const random = (below) => {
  seed = (seed * 48271) % 2147483647;
  return seed % below;
};

function graphs() {
  const made = [
    { nodes: [], edges: [] },
    { nodes: ["a"], edges: ["aa"] },
    { nodes: ["a", "b", "c", "d"], edges: ["ab", "bc", "cd", "ad", "da", "cc"] },
    { nodes: ["a", "b"], edges: ["ab", "ba", "ax"] },
  ].map(({ nodes, edges }) => ({
    nodes: nodes.map((id) => ({ id, label: id })),
    edges: edges.map(([from, to]) => ({ from, to })),
  }));
  for (const size of [3, 8, 20, 60]) {
    for (let round = 0; round < 6; round++) {
      const banded = round % 2 === 0;
      const nodes = Array.from({ length: size }, (_, id) => ({
        id,
        label: "x".repeat(1 + random(60)),
        ...(banded ? { band: Math.floor((3 * id) / size) } : {}),
      }));
      const edges = Array.from({ length: 2 * size }, () => {
        const [from, to] = [random(size), random(size)];
        return banded && from > to ? { from: to, to: from } : { from, to };
      });
      made.push({ nodes, edges });
    }
  }
  return made;
}

function trees() {
  return [1, 2, 10, 120].map((size) => ({
    nodes: Array.from({ length: size }, (_, id) => ({ id, label: `box ${id}` })),
    edges: Array.from({ length: size - 1 }, (_, at) => ({ from: random(at + 1), to: at + 1 })),
  }));
}

const drawn = graphs().map((graph) => ({ graph, placed: layout(graph), again: layout(graph) }));
const tidy = trees().map((graph) => ({ graph, placed: layout(graph, { tree: true }) }));
const fifty = Array.from({ length: 50 }, (_, id) => ({ id, label: "n" }));
const many = layout({ nodes: fifty, edges: [] }, { most: 20 });
const chain = layout({
  nodes: ["a", "b", "c"].map((id) => ({ id, label: id })),
  edges: [{ from: "a", to: "b" }, { from: "a", to: "c" }],
});
const [a] = chain.nodes;
const next = (key) => nextBox(chain.nodes, a, key)?.id ?? null;
const keys = ["ArrowRight", "ArrowLeft", "ArrowDown", "Tab"].map(next);
console.log(JSON.stringify({ drawn, tidy, many: [many.nodes.length, many.leftOut], keys }));
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the page's module makes of graphs and trees, in Node."""
    folder = tmp_path_factory.mktemp("graphs")
    for name in ("graph.js", "dom.js"):
        shutil.copy(PAGE / name, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "script.js").write_text(SCRIPT)
    done = subprocess.run([node(), "script.js"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def overlaps(one: Any, other: Any) -> bool:
    return bool(
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"] - 1e-6
        and other["y"] < one["y"] + one["height"] - 1e-6
    )


def check_apart(placed: Any) -> None:
    boxes = placed["nodes"]
    for at, box in enumerate(boxes):
        assert box["x"] >= 0 and box["x"] + box["width"] <= placed["width"]
        assert box["y"] >= 0 and box["y"] + box["height"] <= placed["height"]
        assert not any(overlaps(box, other) for other in boxes[:at])


def test_boxes_lie_apart_within_the_drawing_and_the_same_graph_is_drawn_alike(laid: Any) -> None:
    for each in laid["drawn"]:
        assert len(each["placed"]["nodes"]) == len(each["graph"]["nodes"])
        check_apart(each["placed"])
        assert each["placed"] == each["again"]


def test_edges_lead_to_the_right_but_for_those_that_close_a_cycle(laid: Any) -> None:
    ways = set()
    for each in laid["drawn"]:
        boxes = {box["id"]: box for box in each["placed"]["nodes"]}
        for edge in each["placed"]["edges"]:
            start, end = boxes[edge["from"]], boxes[edge["to"]]
            ways.add(edge["way"])
            if edge["way"] == "forward":
                assert start["layer"] < end["layer"]
                xs = [x for x, _ in edge["points"]]
                assert xs == sorted(xs) and xs[0] >= start["x"] and xs[-1] == end["x"]
            else:
                assert (edge["way"] == "self") == (edge["from"] == edge["to"])
        known = [e for e in each["graph"]["edges"] if e["from"] in boxes and e["to"] in boxes]
        assert len(each["placed"]["edges"]) == len(known)
    assert ways == {"forward", "back", "self"}


def test_an_edge_that_leads_back_closes_a_cycle(laid: Any) -> None:
    for each in laid["drawn"]:
        edges = [edge for edge in each["placed"]["edges"] if edge["way"] != "self"]
        feeds: dict[object, set[object]] = {}
        for edge in edges:
            feeds.setdefault(edge["from"], set()).add(edge["to"])
        for edge in edges:
            if edge["way"] == "back":  # it can be reached from where it leads to
                seen, waiting = {edge["to"]}, [edge["to"]]
                while waiting:
                    below = feeds.get(waiting.pop(), set()) - seen
                    seen |= below
                    waiting += below
                assert edge["from"] in seen


def test_a_higher_band_is_right_of_all_of_a_lower_one(laid: Any) -> None:
    for each in laid["drawn"]:
        bands = each["placed"]["bands"]
        for left, right in pairwise(bands):
            assert left["band"] < right["band"] and left["x"] + left["width"] < right["x"]


def test_a_tree_has_each_box_beside_the_first_below_it_and_the_rest_under_that(laid: Any) -> None:
    for each in laid["tidy"]:
        check_apart(each["placed"])
        boxes = {box["id"]: box for box in each["placed"]["nodes"]}
        below: dict[int, list[int]] = {}
        for edge in each["graph"]["edges"]:
            below.setdefault(edge["from"], []).append(edge["to"])
        for at, children in below.items():
            ys = [boxes[child]["y"] for child in children]
            assert ys[0] == boxes[at]["y"] and ys == sorted(set(ys))
            assert all(boxes[child]["layer"] == boxes[at]["layer"] + 1 for child in children)


def test_what_is_beyond_the_bound_is_counted_and_arrows_go_to_the_nearest_box(laid: Any) -> None:
    assert laid["many"] == [20, 30]
    right, *others = laid["keys"]
    assert right in ("b", "c") and others == [None, None, None]
