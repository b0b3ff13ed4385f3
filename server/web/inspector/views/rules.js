/**
 * Rules: the graph of rules and strata, what each derives and costs, and why a fact is there, or is not.
 *
 * The graph and the costs come from the request `rules`, each few seconds; the facts of the relation that is picked, the
 * suspended rules and the texts are followed live.
 */

import { parse, text } from "../../static/dataspace.js";
import { MOST_ROWS, attempt, facts, follow, h, ifObserved, labelled, leftOut, number, panel, read, replace, said, write } from "../common.js";
import { layered } from "../graph.js";
import { table } from "../table.js";

const PAUSE = 3000;
const MOST_BOXES = 200;
const MOST_STEPS = 500;
const MOST_NAMED = 100;
const COSTS = [
  { title: "Milliseconds", width: "7rem", align: "right", sort: (each) => Number(each.milliseconds) },
  { title: "Rows", width: "5.5rem", align: "right", sort: (each) => Number(each.rows) },
  { title: "Rule", width: "minmax(9rem, 1fr)", sort: (each) => each.rule },
];

const EMPTY = "There is no rule, or none that this token may observe. dataspace rule add near 'near($a, $b) <- at($a, $p), at($b, $p).' adds one, as does a fact rule(NAME, TEXT).";

export default {
  name: "Rules",
  key: "r",
  mount(place, app) {
    const looks = app.may("inspect");
    let picked = app.params.get("relation");
    let shown = null; // the facts of the relation that is picked, as they are followed
    let asked = 0;
    let before = ""; // what was drawn last
    let errors = null; // the facts rule-error, as they are followed
    let isShown = app.may("observe"); // whether the graph is asked for

    const suspended = h("ul", { class: "list", id: "suspended" });
    const drawing = h("div", { id: "rule-graph" }, h("p", { class: "note" }, looks ? EMPTY : "The graph of rules needs a token with the right inspect."));
    const heading = h("h2", { id: "facts-title" }, "Facts");
    const left = h("p", { class: "note", hidden: true });
    const field = h("input", { id: "about", class: "mono grow", type: "text", spellcheck: "false", autocomplete: "off", placeholder: 'near("Alice", "Ben")', value: app.params.get("fact") ?? "" });
    const answer = h("div", { id: "answer", role: "status" });
    const whole = h("p", { class: "value", id: "whole-rule", hidden: true });
    const costs = table({
      label: "What each rule costs",
      columns: COSTS,
      row: (each) => [Number(each.milliseconds).toFixed(1), number(each.rows), each.rule],
      key: (each) => each.at,
      empty: looks ? EMPTY : "What rules cost needs a token with the right inspect.",
      onpick: (each) => {
        write(whole, each.rule);
        const head = /^[^(<]+/.exec(each.rule.replace(/^(next|send)\s+/, ""))?.[0].trim();
        if (head) pick(head);
      },
    });
    const derived = table({
      label: "Facts of the relation that is picked",
      columns: [{ title: "Fact", width: "minmax(14rem, 1fr)", sort: (each) => each }],
      row: (each) => [each],
      key: (each) => each,
      empty: "Pick a box of the graph, or a rule, to see its facts; then pick a fact to see why it is there.",
      onpick: (each) => {
        field.value = each;
        attempt(app, () => why())();
      },
    });

    replace(
      place,
      h("section", { id: "suspended-panel", "aria-label": "Suspended rules" }, suspended),
      panel("The graph of rules, stratum by stratum", { id: "graph-panel" }, drawing),
      h(
        "div",
        { class: "thirds" },
        h("section", { class: "stack", "aria-label": "Costs" }, h("h2", {}, "What each rule costs"), costs.element, whole),
        h("section", { class: "stack", "aria-labelledby": "facts-title" }, heading, derived.element, left),
        panel(
          "Why, or why not",
          { id: "why-panel" },
          h(
            "form",
            { class: "bar", onsubmit: attempt(app, why), "aria-label": "Why, or why not" },
            h("label", { for: "about", class: "off-screen" }, "A fact"),
            field,
            h("button", { type: "submit", class: "primary", id: "why" }, "Why"),
            h("button", { type: "button", id: "why-not", onclick: attempt(app, whyNot) }, "Why not"),
          ),
          answer,
        ),
      ),
    );
    replace(answer, h("p", { class: "note" }, "Type a fact, or pick one beside this. Fields may be left open: near(\"Alice\", _)."));

    // -- the graph --

    async function look() {
      const [graph, explained] = await Promise.all([
        isShown ? app.space.request("rules", { ask: "graph", about: null, form: "rows" }).catch(withheld) : null,
        app.space.request("rules", { ask: "explain", about: null, form: "rows" }),
      ]);
      const rules = explained.filter((each) => each.rule !== undefined).map((each, at) => ({ ...each, at }));
      costs.set(rules);
      if (!graph) return;
      const counts = new Map(explained.filter((each) => each.relation !== undefined).map((each) => [each.relation, each]));
      const told = JSON.stringify([graph, [...counts.values()].map(({ relation, rows }) => [relation, rows])], (_, value) => (typeof value === "bigint" ? String(value) : value));
      if (told !== before) draw(graph, counts);
      before = told;
    }

    /** Says that something in the graph may not be observed, and asks for it no more. */
    function withheld(error) {
      if (error.code !== "not-allowed") throw error;
      isShown = false;
      replace(drawing, h("p", { class: "note" }, `${error.text}.`));
      return null;
    }

    function draw(graph, counts) {
      const nodes = graph.filter((each) => each.node !== undefined);
      const edges = graph.filter((each) => each.from !== undefined);
      if (!nodes.length) return void replace(drawing, h("p", { class: "note" }, EMPTY));
      const fed = new Set(edges.map(({ part, to }) => `${part} ${to}`));
      const { element } = layered(
        {
          nodes: nodes.map((each) => {
            const rows = counts.get(each.node.trim())?.rows;
            const view = each.node.endsWith(" ");
            const said = rows === undefined ? each.kind : `${number(rows)} rows`;
            const label = each.node.trim();
            return {
              id: `${each.part} ${each.node}`,
              label: rows === undefined ? label : `${label} · ${number(rows)}`,
              title: `${label}: ${view ? "facts that a rule asks for" : "what rules derive"}${rows === undefined ? "" : `, ${said}`}`,
              band: Number(each.stratum),
              class: view ? (fed.has(`${each.part} ${each.node}`) ? "rule-view" : "rule-base") : "rule-head",
              round: view ? 13 : 4,
              said,
            };
          }),
          edges: unique(edges).map((each) => ({
            from: `${each.part} ${each.from}`,
            to: `${each.part} ${each.to}`,
            label: each.port,
            class: `${each.blocking ? "blocking" : ""} ${each.delayed ? "delayed" : ""}`.trim(),
          })),
        },
        {
          label: "The graph of rules",
          bandName: (band) => `stratum ${band}`,
          most: MOST_BOXES,
          picked: nodes.map((each) => `${each.part} ${each.node}`).find((each) => each.replace(/^\d+ /, "").trim() === picked) ?? null,
          onpick: (id) => pick(id.replace(/^\d+ /, "").trim()),
        },
      );
      const scroll = drawing.querySelector(".graph-scroll");
      const [x, y] = [scroll?.scrollLeft ?? 0, scroll?.scrollTop ?? 0];
      const wasOpen = drawing.querySelector("details")?.open;
      const held = drawing.contains(document.activeElement) ? document.activeElement.closest(".graph-box")?.dataset.node : null;
      replace(drawing, element, h("p", { class: "note" }, "Round: facts that rules ask for. Square: what rules derive, with the number of rows. Red: waits for all of its input. Dashed: a tick later."));
      element.querySelector(".graph-scroll").scrollTo(x, y);
      if (wasOpen) element.querySelector("details").open = true;
      if (held) [...element.querySelectorAll(".graph-box")].find((each) => each.dataset.node === held)?.focus();
    }

    // -- facts --

    /** Follows the facts of a relation: those that a view asks for, or all with the label of a head. */
    function pick(relation) {
      picked = relation;
      app.keep({ relation });
      shown?.end();
      shown = null;
      derived.set([]);
      write(left, "");
      replace(heading, `Facts of ${relation}`);
      let pattern;
      try {
        pattern = relation.endsWith(")") ? facts(parse(relation.replace(/\$(?=[,)\s\]}])/g, "_"))) : labelled(labelOf(relation));
      } catch {
        write(left, `${relation} has no facts of its own to show.`);
        return;
      }
      const changed = () => {
        derived.set([...shown.rows.values()].map(([fact]) => text(fact)));
        write(left, leftOut(shown.leftOut, "facts", MOST_ROWS));
      };
      const refused = () => write(left, `This token may not observe all facts of ${relation}.`);
      shown = follow(app, app.space, pattern, changed, { refused });
    }

    // -- why --

    async function why() {
      await explain("why");
    }

    async function whyNot() {
      await explain("why-not");
    }

    async function explain(ask) {
      const fact = read(field, answer);
      if (fact === null || fact === undefined) return;
      const mine = ++asked;
      app.keep({ fact: field.value.trim() });
      const from = await newest();
      let rows = await app.space.request("rules", { ask, about: fact, form: "rows" });
      let heard = ask;
      if (ask === "why" && !rows.length) {
        heard = "why-not";
        rows = await app.space.request("rules", { ask: heard, about: fact, form: "rows" });
      }
      const upto = await newest();
      if (mine !== asked) return;
      const when = from === null ? null : h("p", { class: "note", id: "why-epoch" }, from === upto ? `At epoch ${from}.` : `Between epochs ${from} and ${upto}.`);
      replace(answer, when, ...(heard === "why" ? proof(rows) : lacking(fact, rows)));
      answer.dataset.answer = heard;
    }

    /** Returns the newest epoch; null where there is no log. */
    async function newest() {
      if (app.spaceName === "system") return null;
      return (await app.space.request("frontier", { after: 0 })).epoch;
    }

    function proof(rows) {
      const top = h("ul", { class: "proof" });
      const lists = [top];
      for (const each of rows.slice(0, MOST_STEPS)) {
        const depth = Number(each.depth);
        const item = h("li", {}, ...stepOf(each));
        lists[depth].append(item);
        const below = h("ul");
        item.append(below);
        lists[depth + 1] = below;
      }
      for (const list of top.querySelectorAll("ul:empty")) list.remove();
      return [h("p", { class: "good" }, `${said(rows[0].fact)} holds:`), top, rows.length > MOST_STEPS ? h("p", { class: "note" }, leftOut(rows.length - MOST_STEPS, "steps", MOST_STEPS)) : null];
    }

    function stepOf(each) {
      if (each.withheld) return [h("span", { class: "note" }, `${number(each.withheld)} facts are withheld: the token does not allow to observe them`)];
      if (each.literal) return [h("code", {}, each.literal), h("span", { class: "note" }, ` ${each.holds}`)];
      if (each.absent) return [h("code", {}, each.absent), h("span", { class: "note" }, " has no match")];
      const name = h("button", { type: "button", class: "plain mono", "data-fact": said(each.fact), onclick: attempt(app, () => ((field.value = text(each.fact)), why())) }, said(each.fact));
      const by = each.by === "claimed" ? `claimed${each.owners ? ` by ${each.owners.join(", ")}` : ""}` : each.by;
      return [name, h("span", { class: "note" }, ` ${each.by === "claimed" ? "" : "by "}${by}`)];
    }

    function lacking(fact, rows) {
      const there = rows.find((each) => each.there !== undefined);
      if (there) return [h("p", { class: "good" }, `${said(there.there)} is there: ask why.`)];
      const lines = rows.slice(0, MOST_STEPS).map((each) =>
        each.withheld
          ? h("li", { class: "note" }, `${number(each.withheld)} rules are withheld: the token does not allow to observe what they ask for`)
          : h("li", { "data-rule": each.rule }, h("code", {}, each.rule), h("div", { class: "warn" }, `▲ ${each.lacks}`)),
      );
      return [
        h("p", { class: "warn" }, `${said(fact)} does not hold:`),
        lines.length ? h("ul", { class: "list" }, ...lines) : h("p", { class: "note" }, "No rule derives such a fact, and no client claims it."),
      ];
    }

    // -- suspended --

    // the facts rule-error are in the space itself, so they are seen without the right to inspect
    const refused = () => replace(suspended, h("li", { class: "note" }, "Whether rules are suspended is shown to a token that may observe rule-error(_, _, _, _)."));
    const beginErrors = () => (errors = follow(app, app.space, "rule-error($name, _, _, $why)", tellSuspended, { refused }));
    function tellSuspended() {
      const all = [...errors.rows.values()];
      replace(
        suspended,
        ...(all.length
          ? all.slice(0, MOST_NAMED).map(([name, reason]) => h("li", { class: "bad", "data-suspended": name }, `✗ Rule ${name} is not carried out: ${reason}`))
          : [h("li", { class: "good", "data-suspended": "" }, "✓ No rule of this space is suspended.")]),
        all.length > MOST_NAMED ? h("li", { class: "note" }, leftOut(all.length - MOST_NAMED, "rules", MOST_NAMED)) : null,
      );
    }

    const unsure = h("li", {});
    replace(suspended, unsure);
    ifObserved(app, unsure, "Suspended rules are facts rule-error(…), which this token perhaps may not observe.", beginErrors);
    if (looks && !isShown) {
      const note = h("p", {});
      replace(drawing, note);
      ifObserved(app, note, "The graph shows what rules ask for, which this token perhaps may not observe.", () => {
        isShown = true;
        look().catch(app.fail);
      });
    }
    if (picked) pick(picked);
    if (field.value) attempt(app, why)();
    const end = looks ? app.poll(PAUSE, look) : () => {};
    return () => {
      end();
      errors?.end();
      shown?.end();
      costs.dispose();
      derived.dispose();
    };
  },
};

/** Returns edges without those that are drawn alike. */
function unique(edges) {
  return [...new Map(edges.map((each) => [JSON.stringify([each.part, each.from, each.to, each.port, each.blocking, each.delayed]), each])).values()];
}

/** Returns the label of a head: `near`, of `near/2` or of `near/2` with another kind before it. */
function labelOf(relation) {
  const name = relation.replace(/\/\d+$/, "");
  const value = parse(`${name}()`);
  if (value?.label === undefined) throw new TypeError(name);
  return value.label;
}
