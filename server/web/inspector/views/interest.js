/**
 * Interest and index: who observes what, the trie in which the daemon files it, and the way that one fact takes.
 *
 * The patterns come live from the facts `Observe(pattern)`; who has each from the request `owners`; the boxes of the trie,
 * with the way of a fact marked, from the request `index`. Both are asked again when a pattern comes or goes, and each few
 * seconds for the counts.
 */

import { capture, key, record, text } from "../../static/dataspace.js";
import { MOST_ROWS, attempt, follow, h, ifObserved, leftOut, number, panel, read, replace, said, write } from "../common.js";
import { layered } from "../graph.js";
import { table } from "../table.js";

const PAUSE = 3000;
const MOST_CLAIMS = 5000;
const MOST_BELOW = 25;
const MOST_BOXES = 200;
const MOST_NAMED = 200;

export default {
  name: "Interest",
  key: "i",
  mount(place, app) {
    const looks = app.may("inspect");
    const patterns = new Map(); // from keys of patterns to {pattern, text, owners}
    let names = new Map(); // from numbers of sessions to their names
    let picked = null;
    let asking = false;
    let again = false;
    let fact = null; // whose way is shown
    let before = ""; // what was drawn last
    let interests = null; // the facts Observe(pattern), as they are followed
    let isRefused = false; // whether the token may not observe them

    const list = table({
      label: "Observed patterns",
      columns: [
        { title: "Pattern", width: "minmax(11rem, 2fr)", sort: (each) => each.text },
        { title: "Observers", width: "5.5rem", align: "right", sort: (each) => each.owners?.length ?? 0 },
        { title: "Who", width: "minmax(9rem, 1.5fr)" },
      ],
      row: (each) => [each.text, each.owners ? number(each.owners.length) : "–", each.owners ? each.owners.slice(0, 5).map(called).join(", ") : ""],
      key: (each) => each.key,
      empty: "Nothing is observed. A client that calls observe('present($who)') appears here at once.",
      onpick: (each) => {
        picked = each.key;
        showWho();
      },
    });
    const left = h("p", { class: "note", hidden: true });
    const who = panel("Observers", { id: "observers" });
    const field = h("input", { id: "fact", class: "mono grow", type: "text", spellcheck: "false", autocomplete: "off", placeholder: 'present("Alice")', value: app.params.get("fact") ?? "" });
    const verdict = h("p", { id: "way", role: "status" });
    const drawing = h("div", { id: "trie" });
    const counts = h("p", { class: "note", id: "trie-note" });

    replace(
      place,
      h("div", { class: "split short" }, h("div", { class: "stack" }, list.element, left), h("div", { class: "side" }, who)),
      panel(
        "The index, and the way of one fact through it",
        { id: "index-panel", of: "grow" },
        h(
          "form",
          { class: "bar", onsubmit: attempt(app, ask), "aria-label": "The way of a fact" },
          h("label", { for: "fact" }, "A fact"),
          field,
          h("button", { type: "submit", class: "primary" }, "Show its way"),
          h("button", { type: "button", id: "clear", onclick: attempt(app, clear) }, "Clear"),
        ),
        verdict,
        drawing,
        counts,
      ),
    );
    showWho();
    if (field.value) fact = read(field, verdict) ?? null;
    if (!looks) write(counts, "The index and the observers of each pattern need a token with the right inspect.");

    async function ask() {
      const given = read(field, verdict);
      if (given === undefined) return;
      fact = given;
      app.keep({ fact: fact === null ? null : field.value.trim() });
      if (fact !== null && looks) app.say(`asked for the way of ${field.value.trim()}`);
      await look();
    }

    async function clear() {
      field.value = "";
      await ask();
    }

    const called = (owner) => {
      const session = /^session:([\d.]+)(?: interests)?$/.exec(owner)?.[1];
      const name = session && names.get(session);
      return session ? `${name || "session"} (${session})` : owner;
    };

    function showWho() {
      const each = patterns.get(picked);
      const title = h("h2", {}, "Observers");
      if (!each) {
        replace(who, title, h("p", { class: "note" }, "Pick a pattern to see who observes it. An observer that asked to be quiet, as this page, has no interest to show."));
        return;
      }
      replace(
        who,
        title,
        h("p", { class: "mono wrap" }, each.text),
        each.owners
          ? h("ul", { class: "list" }, ...each.owners.slice(0, MOST_NAMED).map((owner) => h("li", { "data-owner": owner }, called(owner))))
          : h("p", { class: "note" }, "Who observes it needs the right inspect."),
        each.owners?.length > MOST_NAMED ? h("p", { class: "note" }, leftOut(each.owners.length - MOST_NAMED, "observers", MOST_NAMED)) : null,
      );
    }

    function show() {
      const now = new Set();
      for (const [pattern] of interests.rows.values()) {
        const at = String(key(pattern));
        now.add(at);
        if (!patterns.has(at)) patterns.set(at, { key: at, pattern, text: said(pattern), owners: null });
      }
      for (const at of patterns.keys()) if (!now.has(at)) patterns.delete(at);
      list.set(patterns.values());
      write(left, leftOut(interests.leftOut, "patterns", MOST_ROWS));
      showWho();
    }

    /** Asks again, once more if something changes meanwhile. */
    async function look() {
      if (!looks) return;
      if (asking) {
        again = true;
        return;
      }
      asking = true;
      try {
        do {
          again = false;
          await lookOnce();
        } while (again);
      } finally {
        asking = false;
      }
    }

    async function lookOnce() {
      if (interests && !isRefused) {
        const claims = await app.space.request("owners", { pattern: record("Observe", record("_")), most: MOST_CLAIMS });
        const owners = new Map();
        for (const { fact, owner } of claims) {
          const at = String(key(fact.fields[0]));
          if (!owners.has(at)) owners.set(at, []);
          owners.get(at).push(owner);
        }
        for (const each of patterns.values()) {
          const found = owners.get(each.key) ?? null;
          if (found?.join() !== each.owners?.join()) patterns.set(each.key, { ...each, owners: found });
        }
        list.set(patterns.values());
        showWho();
      }
      const boxes = await app.space.request("index", { form: "rows", most: MOST_BELOW, ...(fact === null ? {} : { value: fact }) });
      draw(boxes);
    }

    function draw(boxes) {
      const withheld = boxes.at(-1)?.withheld ?? 0;
      const all = boxes.filter((each) => each.box !== undefined);
      const told = JSON.stringify([all, fact === null ? null : text(fact)], (_, value) => (typeof value === "bigint" ? String(value) : value));
      if (told === before) return;
      before = told;
      const chosen = new Set([...all.filter((each) => each.passed), ...all].slice(0, MOST_BOXES).map((each) => each.box));
      // what is drawn hangs from something drawn
      const shown = all.filter((each) => chosen.has(each.box) && chosen.has(each.above));
      const { element } = layered(
        {
          nodes: shown.map((each) => ({ id: each.box, label: words(each), title: each.text, class: `trie-${each.kind} ${each.passed && fact !== null ? "passed" : ""}`, said: each.passed && fact !== null ? "on the way" : "", round: each.kind === "node" ? 13 : 3 })),
          edges: shown.filter((each) => each.box !== each.above).map((each) => ({ from: each.above, to: each.box, class: each.passed && fact !== null ? "passed" : "" })),
        },
        { label: "The trie of the index", most: MOST_BOXES, tree: true },
      );
      const scroll = drawing.querySelector(".graph-scroll");
      const [x, y] = [scroll?.scrollLeft ?? 0, scroll?.scrollTop ?? 0];
      const wasOpen = drawing.querySelector("details")?.open;
      const held = drawing.contains(document.activeElement) ? document.activeElement.closest("[data-node]")?.dataset.node : null;
      replace(drawing, element);
      element.querySelector(".graph-scroll").scrollTo(x, y);
      if (wasOpen) element.querySelector("details").open = true;
      if (held) element.querySelector(`.graph-box[data-node="${held}"]`)?.focus();
      const said = [`${number(shown.length)} of ${number(all.length)} boxes are drawn, ${number(MOST_BELOW)} below one at most.`];
      if (withheld) said.push(`${number(withheld)} patterns are withheld: the token does not allow to observe them.`);
      said.push("Round boxes are steps into a fact (up, path), then come the parts that are compared or checked, then the constants with what is captured.");
      write(counts, said.join(" "));
      const ends = all.filter((each) => each.passed && each.kind === "leaf");
      write(verdict, fact === null ? "" : ends.length ? `${text(fact)} reaches ${number(ends.length)} of the leaves: the observers there are called.` : `${text(fact)} reaches no leaf: nothing observes it.`);
      verdict.className = ends.length ? "good" : "warn";
    }

    const changed = () => {
      show();
      look().catch(app.fail);
    };
    const refused = () => {
      isRefused = true;
      write(left, "This token may not observe Observe(_), so no pattern is listed.");
    };
    const begin = () => {
      write(left, "");
      interests = follow(app, app.space, record("Observe", capture("pattern")), changed, { refused });
    };
    ifObserved(app, left, "This token may not observe everything: perhaps not the facts Observe(_) either, which say what is observed.", begin);
    const sessions = app.system && looks
      ? follow(app, app.system, record("session", capture("number"), app.spaceName, capture("name")), () => {
          names = new Map([...sessions.rows.values()].map(([each, name]) => [String(each), name]));
          list.redraw();
          showWho();
        })
      : null;
    const end = looks ? app.poll(PAUSE, look) : () => {};
    return () => {
      interests?.end();
      sessions?.end();
      end();
      list.dispose();
    };
  },
};

/** Returns what a box says, without the counts that its title has. */
function words({ kind, text: whole }) {
  return kind === "leaf" ? whole.replace(/^(.{0,28}).*?: .*?captures /, "$1: captures ").replace(/ \(\d+ rows?\)/g, "") : whole;
}

