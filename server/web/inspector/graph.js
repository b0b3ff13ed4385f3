/**
 * Layered graphs: which box feeds which, drawn from left to right, with the same as a list beside it.
 *
 * Layers are the longest paths from the boxes that nothing feeds. An edge over more than one layer bends around the boxes
 * between (it has a dummy node in each layer); an edge that closes a cycle is drawn apart, below all boxes, and one from a
 * box to itself as a loop above it. Sweeps that put each box near the mean of its neighbours leave few crossings.
 *
 * `layout` computes places and needs no page; `layered` draws them. The same graph has the same drawing.
 */

import { h, number, replace } from "./dom.js";

export const MOST = 300;

const SWEEPS = 8;
const SETTLING = 12;
const HEIGHT = 26;
const GAP = 12;
const DUMMY_GAP = 6;
const BETWEEN = 46;
const LETTER = 7;
const LONGEST = 46;
const MARGIN = 12;
const BACK = 14;

// -- where things are --

/**
 * Returns the places of nodes and edges: `{nodes, edges, bands, width, height, leftOut}`.
 *
 * A node is `{id, label, class?, band?}`: those of a higher band (a stratum) are right of all of a lower one. Placed ones have
 * `x`, `y`, `width`, `height` and `layer`; edges have `points` from left to right, or `way` = `"back"` or `"self"`. Edges to
 * unknown nodes are dropped; beyond `most` nodes the rest is left out and counted. With `tree` the graph is one: each box is
 * beside the first that it feeds, and all stand in the order in which they are given.
 */
export function layout({ nodes, edges }, { most = MOST, tree = false } = {}) {
  const kept = nodes.slice(0, most);
  const boxes = new Map(kept.map((node) => [node.id, { ...node, width: widthOf(node), height: HEIGHT }]));
  const known = edges.filter(({ from, to }) => boxes.has(from) && boxes.has(to));
  const forward = forwardEdges(boxes, known);
  const layers = layersOf(boxes, forward);
  const { columns, chains } = withDummies(boxes, forward, layers);
  const around = neighbours(chains);
  if (tree) placeTree(columns, around);
  else {
    order(columns, around);
    place(columns, around);
  }
  const height = Math.max(HEIGHT, ...columns.flat().map((each) => each.y + each.height));
  const back = known.filter((edge) => !forward.has(edge) && edge.from !== edge.to);
  const placed = known.map((edge) => {
    if (edge.from === edge.to) return { ...edge, way: "self", points: [] };
    if (!forward.has(edge)) return { ...edge, way: "back", points: [], depth: height + BACK * (1 + (back.indexOf(edge) % 6)) };
    return { ...edge, way: "forward", points: pointsOf(chains.get(edge)) };
  });
  const width = Math.max(HEIGHT, ...[...boxes.values()].map((each) => each.x + each.width));
  return {
    nodes: [...boxes.values()],
    edges: placed,
    bands: bandsOf(boxes),
    width: width + 2 * MARGIN,
    height: height + 2 * MARGIN + (back.length ? BACK * (1 + Math.min(6, back.length)) : 0),
    leftOut: nodes.length - kept.length,
  };
}

const shown = (label) => (label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label);
const widthOf = ({ label }) => Math.max(3, shown(label).length) * LETTER + 18;

/** Returns the edges that remain when those are left out that lead back in a search from the boxes that nothing feeds. */
function forwardEdges(boxes, edges) {
  const below = new Map([...boxes.keys()].map((id) => [id, []]));
  const fed = new Set();
  for (const edge of edges) {
    if (edge.from === edge.to) continue;
    below.get(edge.from).push(edge);
    fed.add(edge.to);
  }
  const state = new Map(); // 1: on the way, 2: done
  const forward = new Set();
  const roots = [...[...boxes.keys()].filter((id) => !fed.has(id)), ...boxes.keys()];
  for (const root of roots) {
    if (state.has(root)) continue;
    state.set(root, 1);
    const waiting = [[root, 0]];
    while (waiting.length) {
      const top = waiting.at(-1);
      const edge = below.get(top[0])[top[1]++];
      if (!edge) {
        state.set(top[0], 2);
        waiting.pop();
      } else if (state.get(edge.to) !== 1) {
        forward.add(edge);
        if (!state.has(edge.to)) {
          state.set(edge.to, 1);
          waiting.push([edge.to, 0]);
        }
      }
    }
  }
  return forward;
}

/** Sets the layer of each box: the longest path to it, and right of all boxes of lower bands. */
function layersOf(boxes, forward) {
  const above = new Map([...boxes.keys()].map((id) => [id, []]));
  for (const { from, to } of forward) above.get(to).push(from);
  const bands = [...new Set([...boxes.values()].map(({ band = 0 }) => band))].sort((one, other) => one - other);
  const layers = new Map();
  let first = 0;
  for (const wanted of bands) {
    let last = first;
    for (const [id, { band = 0 }] of boxes) {
      if (band !== wanted) continue;
      const waiting = [id];
      while (waiting.length) {
        const at = waiting.at(-1);
        const missing = above.get(at).filter((each) => (boxes.get(each).band ?? 0) === wanted && !layers.has(each));
        if (missing.length) waiting.push(...missing);
        else {
          waiting.pop();
          const under = above.get(at).map((each) => (layers.get(each) ?? -1) + 1);
          layers.set(at, Math.max(first, ...under));
          last = Math.max(last, layers.get(at));
        }
      }
    }
    first = last + 1;
  }
  for (const [id, box] of boxes) box.layer = layers.get(id);
  return layers;
}

/** Returns the boxes of each layer with dummies for long edges, and for each edge the chain of all it passes. */
function withDummies(boxes, forward) {
  const columns = [];
  for (const box of boxes.values()) (columns[box.layer] ??= []).push(box);
  for (let at = 0; at < columns.length; at++) columns[at] ??= [];
  const chains = new Map();
  for (const edge of forward) {
    const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
    const chain = [from];
    for (let layer = from.layer + 1; layer < to.layer; layer++) {
      const dummy = { dummy: true, layer, width: 0, height: 0 };
      columns[layer].push(dummy);
      chain.push(dummy);
    }
    chain.push(to);
    // where a lower band is fed by a higher one (it is not, in a graph of strata) there is nothing between
    chains.set(edge, chain);
  }
  return { columns, chains };
}

function neighbours(chains) {
  const around = new Map();
  const note = (of, left, right) => {
    const entry = around.get(of) ?? { left: [], right: [] };
    if (left) entry.left.push(left);
    if (right) entry.right.push(right);
    around.set(of, entry);
  };
  for (const chain of chains.values()) {
    for (let at = 1; at < chain.length; at++) {
      note(chain[at], chain[at - 1], null);
      note(chain[at - 1], null, chain[at]);
    }
  }
  return around;
}

const mean = (some) => some.reduce((sum, each) => sum + each, 0) / some.length;

/** Puts the boxes of each layer in an order with few crossings. */
function order(columns, around) {
  const number = () => columns.forEach((column) => column.forEach((box, at) => (box.at = at / Math.max(1, column.length - 1))));
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const side = sweep % 2 ? "right" : "left";
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const wanted = new Map();
      for (const box of column) {
        const near = around.get(box)?.[side] ?? [];
        wanted.set(box, near.length ? mean(near.map((each) => each.at)) : box.at);
      }
      column.sort((one, other) => wanted.get(one) - wanted.get(other) || one.at - other.at);
      column.forEach((box, at) => (box.at = at / Math.max(1, column.length - 1)));
    }
  }
}

/** Sets the places of a tree: a row for each leaf, and a box in the row of the first below it. */
function placeTree(columns, around) {
  across(columns);
  let row = MARGIN;
  for (const root of columns.flat().filter((box) => !around.get(box)?.left.length)) {
    const waiting = [root];
    let next = false; // the first below a box is in its row
    while (waiting.length) {
      const box = waiting.pop();
      if (next) row += HEIGHT + GAP;
      box.y = row;
      const below = around.get(box)?.right ?? [];
      waiting.push(...[...below].reverse());
      next = !below.length;
    }
    row += HEIGHT + GAP;
  }
}

/** Sets the columns: one for each layer, as wide as its widest box. */
function across(columns) {
  let x = MARGIN;
  for (const column of columns) {
    const widest = Math.max(0, ...column.map(({ width }) => width));
    for (const box of column) {
      box.x = x;
      if (box.dummy) box.width = widest;
    }
    x += widest + BETWEEN;
  }
}

/** Sets the places: a column for each layer, boxes near their neighbours and never over one another. */
function place(columns, around) {
  across(columns);
  for (const column of columns) {
    let y = MARGIN;
    for (const box of column) {
      box.y = y;
      y += box.height + (box.dummy ? DUMMY_GAP : GAP);
    }
  }
  const middle = (box) => box.y + box.height / 2;
  for (let round = 0; round < SETTLING; round++) {
    const side = round % 2 ? "right" : "left";
    for (const column of round % 2 ? [...columns].reverse() : columns) {
      const wanted = column.map((box) => {
        const near = around.get(box)?.[side] ?? [];
        return near.length ? mean(near.map(middle)) - box.height / 2 : box.y;
      });
      apart(column, wanted);
    }
  }
  const top = Math.min(...columns.flat().map(({ y }) => y));
  for (const box of columns.flat()) box.y += MARGIN - top;
}

/** Moves boxes to where they want to be, but never nearer than their gap: those that push each other share the way. */
function apart(column, wanted) {
  const blocks = []; // of boxes that touch: where the first of them begins, how many there are, and how much room they take
  column.forEach((box, at) => {
    const size = box.height + (box.dummy ? DUMMY_GAP : GAP);
    let block = { count: 1, size, sum: wanted[at], y: wanted[at] };
    while (blocks.length && blocks.at(-1).y + blocks.at(-1).size > block.y) {
      const before = blocks.pop();
      const count = before.count + block.count;
      const sum = before.sum + block.sum - before.size * block.count;
      block = { count, size: before.size + block.size, sum, y: sum / count };
    }
    blocks.push(block);
  });
  let at = 0;
  for (const block of blocks) {
    let { y } = block;
    for (const end = at + block.count; at < end; at++) {
      column[at].y = y;
      y += column[at].height + (column[at].dummy ? DUMMY_GAP : GAP);
    }
  }
}

function pointsOf(chain) {
  const points = [];
  chain.forEach((box, at) => {
    const y = box.y + box.height / 2;
    if (at > 0) points.push([box.x, y]);
    if (at < chain.length - 1) points.push([box.x + box.width, y]);
  });
  return points;
}

function bandsOf(boxes) {
  const bands = new Map();
  for (const { band, x, width } of boxes.values()) {
    if (band === undefined) continue;
    const known = bands.get(band) ?? { band, x, end: x };
    bands.set(band, { band, x: Math.min(known.x, x), end: Math.max(known.end, x + width) });
  }
  return [...bands.values()].sort((one, other) => one.band - other.band).map(({ band, x, end }) => ({ band, x, width: end - x }));
}

// -- how it is drawn --

const SVG = "http://www.w3.org/2000/svg";
let drawings = 0;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

/**
 * Returns `{element, leftOut}`: the drawing, and below it the same as a list, for screen readers and for searching.
 *
 * `onpick(id)` is called when a box is chosen, with the pointer or with Enter; arrow keys go from box to box. `label` says what
 * the graph is about, `bandName` what a band is called, `picked` which box is marked.
 */
export function layered(graph, { onpick = null, label = "Graph", bandName = null, picked = null, most = MOST, tree = false } = {}) {
  const placed = layout(graph, { most, tree });
  const name = `graph-${++drawings}`;
  const boxes = new Map(placed.nodes.map((node) => [node.id, node]));
  const head = bandName && placed.bands.length ? 18 : 0;
  const drawn = new Map();
  const svg = s("svg", {
    class: "graph",
    role: "group",
    "aria-label": `${label}: ${number(placed.nodes.length)} boxes, ${number(placed.edges.length)} edges`,
    width: placed.width,
    height: placed.height + head,
    viewBox: `0 ${-head} ${placed.width} ${placed.height + head}`,
    onkeydown: onKey,
  });
  svg.append(s("defs", {}, ...["", "passed", "blocking"].map((of) => arrow(`${name}-arrow${of}`, of))));
  if (head) {
    for (const { band, x, width } of placed.bands) {
      svg.append(
        s("rect", { class: `graph-band ${band % 2 ? "odd" : ""}`, x: x - 8, y: -head, width: width + 16, height: placed.height + head, rx: 6 }),
        s("text", { class: "graph-band-name", x: x - 2, y: -head + 13 }, bandName(band)),
      );
    }
  }
  for (const edge of placed.edges) svg.append(...edgeOf(edge, boxes, name));
  for (const node of placed.nodes) {
    const made = boxOf(node, { onpick, isPicked: node.id === picked, first: drawn.size === 0, pick });
    drawn.set(node.id, made);
    svg.append(made);
  }
  const note = placed.leftOut ? h("p", { class: "note" }, `${number(placed.leftOut)} more boxes are left out: a drawing has ${number(most)} at most`) : null;
  const element = h(
    "div",
    { class: "graph-of" },
    h("div", { class: "graph-scroll" }, svg),
    note,
    h("details", { class: "graph-list" }, h("summary", {}, "The same as a list"), listOf(placed, onpick)),
  );
  return { element, leftOut: placed.leftOut };

  function pick(id) {
    for (const [each, box] of drawn) {
      box.classList.toggle("picked", each === id);
      box.setAttribute("tabindex", each === id ? 0 : -1);
    }
    onpick?.(id);
  }

  function onKey(event) {
    const id = event.target.closest?.(".graph-box")?.dataset.node;
    const from = id === undefined ? null : [...drawn].find(([each]) => String(each) === id);
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") pick(from[0]);
    else {
      const to = nextBox(placed.nodes, boxes.get(from[0]), event.key);
      if (!to) return;
      from[1].setAttribute("tabindex", -1);
      drawn.get(to.id).setAttribute("tabindex", 0);
      drawn.get(to.id).focus();
    }
    event.preventDefault();
  }
}

/** Returns the nearest box in the direction of an arrow key. */
export function nextBox(nodes, from, key) {
  const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  if (!way) return null;
  let best = null;
  for (const node of nodes) {
    const [dx, dy] = [node.x - from.x, node.y - from.y];
    const along = dx * way[0] + dy * way[1];
    const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (node.id === from.id || along <= 0 || (way[1] && node.layer !== from.layer)) continue;
    const far = along + 3 * aside;
    if (!best || far < best.far) best = { node, far };
  }
  return best?.node ?? null;
}

function arrow(id, of) {
  return s(
    "marker",
    { id, class: `graph-arrow ${of}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
    s("path", { d: "M0 0.5 L8 4 L0 7.5 z" }),
  );
}

function boxOf(node, { onpick, isPicked, first, pick }) {
  const text = shown(node.label);
  return s(
    "g",
    {
      class: `graph-box ${node.class ?? ""} ${isPicked ? "picked" : ""}`,
      "data-node": node.id,
      role: onpick ? "button" : "img",
      "aria-label": node.label,
      tabindex: first ? 0 : -1,
      transform: `translate(${node.x} ${node.y})`,
      onclick: () => pick(node.id),
    },
    s("title", {}, node.title ?? node.label),
    s("rect", { width: node.width, height: node.height, rx: node.round ?? 5 }),
    s("text", { x: node.width / 2, y: node.height / 2, "text-anchor": "middle", "dominant-baseline": "central" }, text),
  );
}

function edgeOf(edge, boxes, name) {
  const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
  const kind = /\bpassed\b/.test(edge.class ?? "") ? "passed" : /\bblocking\b/.test(edge.class ?? "") ? "blocking" : "";
  const path = s("path", {
    class: `graph-edge ${edge.class ?? ""} ${edge.way}`,
    d: pathOf(edge, from, to),
    "marker-end": `url(#${name}-arrow${kind})`,
  });
  if (!edge.label) return [path];
  const [x, y] = labelAt(edge, from, to);
  return [path, s("text", { class: `graph-label ${edge.class ?? ""}`, x, y, "text-anchor": "end" }, edge.label)];
}

function pathOf(edge, from, to) {
  if (edge.way === "self") {
    const [x, y] = [from.x + from.width, from.y];
    return `M${x - 22} ${y} C${x - 22} ${y - 18} ${x - 4} ${y - 18} ${x - 8} ${y}`;
  }
  if (edge.way === "back") {
    const [x1, y1, x2, y2] = [from.x + from.width * 0.7, from.y + from.height, to.x + to.width * 0.3, to.y + to.height];
    return `M${x1} ${y1} C${x1 + 20} ${edge.depth} ${x1} ${edge.depth} ${(x1 + x2) / 2} ${edge.depth} S${x2 - 20} ${edge.depth} ${x2} ${y2}`;
  }
  let path = "";
  edge.points.forEach(([x, y], at) => {
    if (!at) path = `M${x} ${y}`;
    else if (at % 2) {
      const [before, level] = edge.points[at - 1];
      const half = (before + x) / 2;
      path += ` C${half} ${level} ${half} ${y} ${x} ${y}`;
    } else path += ` L${x} ${y}`;
  });
  return path;
}

function labelAt(edge, from, to) {
  if (edge.way === "self") return [from.x + from.width, from.y - 12];
  if (edge.way === "back") return [(from.x + to.x + to.width) / 2, edge.depth - 3];
  const [x, y] = edge.points.at(-1);
  return [x - 10, y - 5];
}

function listOf({ nodes, edges }, onpick) {
  const labels = new Map(nodes.map(({ id, label }) => [id, label]));
  const below = new Map();
  for (const edge of edges) below.set(edge.from, [...(below.get(edge.from) ?? []), edge]);
  const list = h("ul", { class: "list" });
  replace(
    list,
    nodes.map((node) => {
      const feeds = (below.get(node.id) ?? []).map(({ to, label, way }) => `${labels.get(to)}${label ? ` (${label})` : ""}${way === "forward" ? "" : ", back"}`);
      const name = onpick ? h("button", { type: "button", class: "plain", onclick: () => onpick(node.id) }, node.label) : node.label;
      return h("li", { "data-node": node.id }, name, node.said ? ` – ${node.said}` : "", feeds.length ? ` → ${feeds.join("; ")}` : "");
    }),
  );
  return list;
}
