/**
 * Actors: those that the daemon hosts, as a tree of actors and facets, with their crashes and their last turns.
 *
 * From the request `actors`, each two seconds. The daemon records turns only while a page asks for them.
 */

import { about, h, leftOut, number, panel, replace, write } from "../common.js";
import { table } from "../table.js";

const PAUSE = 2000;
const MOST_ACTORS = 100;
const MOST_TURNS = 50;
const MOST_LINES = 2000;
const EMPTY = "The daemon hosts no actor. [[actors]] in its configuration, or --actor MODULE:FUNCTION, starts one.";

export default {
  name: "Actors",
  key: "a",
  mount(place, app) {
    let hosted = [];
    let picked = app.params.get("actor");
    const turns = app.may("everything") ? MOST_TURNS : 0; // turns show facts of all spaces

    const list = table({
      label: "Hosted actors, what they have spawned, and their facets",
      columns: [
        { title: "Actor", width: "minmax(12rem, 1fr)" },
        { title: "State", width: "6.5rem" },
        { title: "Crashes", width: "5rem", align: "right" },
        { title: "Turns", width: "5rem", align: "right" },
        { title: "Facets", width: "6.5rem", align: "right" },
        { title: "Last crash", width: "minmax(12rem, 1.4fr)" },
      ],
      row: (each) => each.cells,
      key: (each) => each.id,
      empty: app.may("inspect") ? EMPTY : "Actors are shown to a token with the right inspect.",
      onpick: (each) => {
        picked = each.of;
        app.keep({ actor: picked });
        detail();
      },
    });
    const left = h("p", { class: "note", hidden: true });
    const side = h("div", { class: "side", id: "actor" });
    replace(place, h("div", { class: "split wide" }, h("div", { class: "stack" }, list.element, left), side));
    detail();
    if (!app.may("inspect")) return () => list.dispose();

    async function look() {
      hosted = await app.space.request("actors", { most: MOST_ACTORS, turns });
      const lines = hosted.flatMap(linesOf);
      list.set(lines.slice(0, MOST_LINES));
      const hidden = hosted.reduce((sum, { actors, tree }) => sum + (tree ? Number(actors) - tree.length : 0), 0);
      write(left, leftOut(lines.length - MOST_LINES, "lines", MOST_LINES) || leftOut(hidden, "actors", MOST_ACTORS));
      detail();
    }

    function detail() {
      const each = hosted.find(({ name }) => name === picked) ?? null;
      const shown = each ? [each] : hosted;
      const kept = shown.flatMap((one) => (one.recent ?? []).map((turn) => ({ ...turn, of: one.name })));
      kept.sort((one, other) => Number(other.turn) - Number(one.turn));
      replace(
        side,
        each ? summary(each) : panel("One actor", {}, h("p", { class: "note" }, hosted.length ? "Pick an actor to see its crash and its turns alone." : "There is none.")),
        panel(
          each ? `Last turns of ${each.name}` : "Last turns",
          { id: "turns", more: each ? h("button", { type: "button", class: "plain", onclick: all }, "of all") : null },
          kept.length
            ? h("ol", { class: "list turns" }, ...kept.slice(0, MOST_TURNS).map(turn))
            : h("p", { class: "note" }, turns ? "No turn since this page began to look. An actor takes one when a fact or message that it observes comes." : "Turns show facts of all spaces: they need a token that may do everything."),
        ),
      );
    }

    function all() {
      picked = null;
      app.keep({ actor: null });
      detail();
    }

    const end = app.poll(PAUSE, look);
    return () => {
      end();
      list.dispose();
    };
  },
};

const SPACE = "\u00a0"; // plain ones at the beginning of a cell are not shown
const MARKS = { running: "● running", waiting: "○ waiting", stuck: "✗ stuck" };

/** Returns the lines of one hosted actor: itself, the actors below it, and their facets. */
function linesOf(each) {
  const crashed = Number(each.crashes) > 0;
  const lines = [
    {
      id: each.name,
      of: each.name,
      cells: [
        `${each.name}${each.isolated ? ` (process ${each.process ?? "–"})` : ""}`,
        { text: MARKS[each.state] ?? each.state, class: each.state === "running" ? "good" : "warn" },
        { text: number(each.crashes), class: crashed ? "bad" : "" },
        number(each.turns),
        number(each.facets),
        { text: each.last ?? "", class: crashed ? "bad" : "" },
      ],
    },
  ];
  const tree = each.tree ?? [];
  tree.forEach((actor, at) => {
    const last = at === tree.length - 1;
    lines.push({ id: `${each.name} ${actor.number}`, of: each.name, cells: [`${last ? "└" : "├"}─ ${actor.name} #${actor.number}`, "", "", number(actor.turns), number(actor.facets), ""] });
    const below = actor.tree.slice(1); // the first is the root, which is the actor
    below.forEach(([depth, name, endpoints], index) => {
      const more = below.slice(index + 1).find(([other]) => other <= depth);
      const branch = more && more[0] === depth ? "├" : "└";
      const indent = `${last ? SPACE : "│"}${SPACE}${SPACE}${SPACE.repeat(3 * Math.max(0, Number(depth) - 1))}`;
      lines.push({ id: `${each.name} ${actor.number} ${index}`, of: each.name, cells: [`${indent}${branch}─ facet ${name}`, "", "", "", `${number(endpoints)} endpoint${Number(endpoints) === 1 ? "" : "s"}`, ""] });
    });
  });
  return lines;
}

function summary(each) {
  return panel(
    each.name,
    { id: "actor-about" },
    about([
      ["space", each.space],
      ["state", each.state],
      ["process", each.isolated ? `${each.process ?? "–"}, apart from the daemon: its tree and its turns are there` : "the daemon's"],
      ["actors", number(each.actors)],
      ["turns", number(each.turns)],
      ["stalls", number(each.stalls)],
      ["crashes", number(each.crashes)],
    ]),
    each.last ? h("p", { class: "bad wrap", id: "crash" }, `✗ ${each.last}`) : null,
  );
}

function turn(each) {
  const more = Number(each.more) ? `${number(each.more)} more actions` : null;
  return h(
    "li",
    { "data-turn": each.turn, class: each.failure ? "bad" : null },
    h("div", {}, h("strong", {}, `${each.turn} ${each.actor}`), ` ${each.event}`, each.cause ? ` ← ${each.cause}` : ""),
    each.actions.length ? h("ul", { class: "actions mono" }, ...each.actions.map((action) => h("li", {}, action)), more ? h("li", { class: "note" }, more) : null) : null,
    each.failure ? h("div", { class: "wrap" }, `✗ ${each.failure}`) : null,
  );
}
