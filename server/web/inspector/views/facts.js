/**
 * Facts: what matches a pattern, live or at a past epoch; who owns each fact, and since when it is there.
 *
 * The table has a column for each capture. A slider travels through the epochs that the log retains; its right end is
 * now.
 */

import { Record, capture, captureNames, parse, text } from "../../static/dataspace.js";
import { clock, frame, h, number, replace } from "../dom.js";
import { KEPT, Live } from "../live.js";
import { Detail, changeLines, changeList, clip } from "../detail.js";
import { Owners } from "../owners.js";
import { table } from "../table.js";
import { Travel } from "../travel.js";

const TYPING_MILLIS = 400;
const COUNTED = 20_000;
const MOST_LABELS = 200;

export default {
  name: "Facts",
  key: "f",
  mount(place, app) {
    const view = new Facts(place, app);
    return () => view.end();
  },
};

class Facts {
  #typing = 0;

  constructor(place, app) {
    this.app = app;
    this.pattern = null;
    this.isLogged = app.spaceName !== "system"; // it has no log, and its one owner is the daemon
    this.live = null;
    this.past = null;
    this.owners = new Owners(app, () => this.grid.redraw());
    this.input = h("input", {
      id: "pattern",
      class: "mono",
      type: "text",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      placeholder: 'present($who, $where)',
      "aria-describedby": "facts-said",
      oninput: () => this.#typed(),
    });
    this.said = h("p", { class: "note facts-said", id: "facts-said" });
    this.grid = table({
      columns: [{ title: "fact" }],
      row: (item) => this.#cells(item),
      key: (item) => item.key,
      rowName: (item) => clip(text(item.fact), 400),
      rowClass: (item) => (this.past?.keys.has(item.key) ? "was-added" : ""),
      label: "Facts that match",
      empty: "no fact matches",
      most: KEPT,
      onpick: (item) => this.detail.show(item),
    });
    this.changes = h("ul", { class: "list changes", id: "changes", "aria-label": "Changes" });
    this.changesTitle = h("h2", {}, "Newest changes");
    this.showRecent = changeLines(this.changes, "Nothing has changed since this page looks.", (epoch) => this.travel.to(epoch));
    this.travel = new Travel(app, {
      onlive: () => this.#toLive(),
      onpast: (past) => this.#toPast(past),
      most: KEPT,
    });
    this.detail = new Detail(app, this.owners, this.travel);
    replace(
      place,
      h(
        "form",
        {
          class: "bar",
          role: "search",
          onsubmit: (event) => {
            event.preventDefault();
            this.#apply(true);
          },
        },
        h("label", { for: "pattern" }, "Pattern"),
        h("span", { class: "grow stack" }, this.input),
        h("button", { type: "submit", class: "primary" }, "Observe"),
      ),
      this.travel.element,
      this.said,
      (this.split = h(
        "div",
        { class: "split", hidden: true },
        this.grid.element,
        h("div", { class: "side" }, this.detail.element, h("section", { class: "panel" }, this.changesTitle, this.changes)),
      )),
    );
    this.labels = h("section", { class: "panel", id: "labels", "aria-label": "Labels of the facts that there are", hidden: true });
    place.insertBefore(this.labels, this.travel.element);
    this.travel.element.hidden = true; // until there is a pattern
    this.draw = frame(() => this.#draw());
    this.input.value = app.params.get("pattern") ?? "";
    this.#begin();
  }

  /** Observes at once if there is a pattern; else offers the labels of the facts that there are. */
  async #begin() {
    if (!this.app.params.has("pattern")) {
      if (!this.app.may("observe")) {
        this.#say("This token may not observe everything. Type a pattern that it may observe.");
        return;
      }
      this.#say("Pick a label, or type a pattern; _ is for all facts.");
      await this.#offer().catch((error) => this.over || this.app.fail(error));
      return;
    }
    if (this.over || this.pattern) return;
    this.#apply(false);
    const epoch = Number(this.app.params.get("epoch") ?? NaN);
    if (Number.isSafeInteger(epoch)) this.travel.to(epoch);
  }

  /** Counts the labels of the facts that there are now, and offers a pattern for each. */
  async #offer() {
    const counts = new Map();
    let seen = 0;
    this.looking = this.app.space.observe(capture("fact"), { quiet: true, parts: true, upto: null });
    for await (const { added, more } of this.looking) {
      for (const [fact] of added) {
        const [label, pattern] = labelOf(fact);
        counts.set(label, { count: (counts.get(label)?.count ?? 0) + 1, pattern });
      }
      seen += added.length;
      if (!more || seen >= COUNTED || this.over) break;
    }
    if (this.over || this.pattern) return;
    const most = [...counts].sort(([, one], [, other]) => other.count - one.count).slice(0, MOST_LABELS);
    const isPart = seen >= COUNTED;
    const offered = most.map(([label, { count, pattern }]) =>
      h("button", { type: "button", "data-label": label, onclick: () => this.#pick(pattern) }, h("code", {}, label), ` ${isPart ? "≥ " : ""}${number(count)}`),
    );
    const left = isPart ? `Counted among the first ${number(seen)} facts alone: there may be more of each label, and further labels.` : "";
    replace(
      this.labels,
      h("h2", {}, offered.length ? "Labels of the facts that there are" : "There is no fact yet. One that is asserted appears as soon as a pattern matches it."),
      h("p", { class: "buttons" }, ...offered),
      left ? h("p", { class: "note" }, left) : null,
    );
    this.labels.hidden = false;
  }

  #pick(pattern) {
    this.input.value = pattern;
    this.input.focus();
    this.#apply(true);
  }

  end() {
    this.over = true;
    this.looking?.close();
    clearTimeout(this.#typing);
    this.live?.stop();
    this.travel.stop();
    this.owners.stop();
    this.detail.stop();
    this.draw.stop();
    this.grid.dispose();
  }

  #typed() {
    clearTimeout(this.#typing);
    this.#parsed();
    this.#typing = setTimeout(() => this.#apply(false), TYPING_MILLIS);
  }

  /** Returns the pattern in the field; null, and says what is wrong, if it is none. */
  #parsed() {
    try {
      const pattern = parse(this.input.value.trim());
      this.input.removeAttribute("aria-invalid");
      if (this.isWrong) this.draw();
      this.isWrong = false;
      return pattern;
    } catch (error) {
      this.isWrong = true;
      this.input.setAttribute("aria-invalid", "true");
      this.#say(error.text ?? error.message, "bad");
      return null;
    }
  }

  #apply(anyway) {
    clearTimeout(this.#typing);
    const pattern = this.#parsed();
    if (pattern === null && this.isWrong) return;
    const said = text(pattern);
    if (!anyway && said === this.applied) return;
    this.applied = said;
    this.app.calm();
    this.pattern = pattern;
    this.labels.hidden = true;
    this.split.hidden = false;
    this.travel.element.hidden = !this.isLogged;
    this.looking?.close();
    this.app.keep({ pattern: this.input.value.trim() });
    this.live?.stop();
    this.detail.show(null);
    this.names = captureNames(pattern).map((name, at) => name ?? `$${at + 1}`);
    this.grid.set([]);
    this.grid.columns(this.#columns());
    this.owners.of(pattern);
    this.live = new Live(this.app.space, pattern, {
      onchange: (changes, isWhole) => this.#changed(changes, isWhole),
      onstate: (again) => (again ? this.grid.redraw() : null, this.draw()),
      onerror: (error) => {
        this.app.fail(error);
        this.#say(error.text ?? error.message, "bad");
      },
    });
    this.travel.of(pattern);
  }

  #columns() {
    const own = this.names.length
      ? this.names.map((title, at) => ({ title, width: "minmax(7rem, 2fr)", sort: (item) => comparable(item.captures[at]) }))
      : [{ title: "fact", width: "minmax(14rem, 4fr)", sort: (item) => text(item.fact) }];
    if (this.past || !this.isLogged) return own; // who owned it then is not kept
    const owner = this.app.may("inspect") ? [{ title: "owner", width: "minmax(8rem, 1.5fr)", sort: (item) => this.owners.said(item) }] : [];
    return [...own, ...owner, { title: "since epoch", width: "minmax(10.5rem, 1fr)", align: "right", sort: (item) => item.since.epoch }];
  }

  #cells(item) {
    const own = this.names.length ? item.captures.map((each) => clip(text(each))) : [clip(text(item.fact))];
    if (this.past || !this.isLogged) return own;
    const owner = this.app.may("inspect") ? [this.owners.said(item)] : [];
    return [...own, ...owner, sinceText(item.since)];
  }

  #changed(changes, isWhole) {
    if (this.isLogged) this.owners.changed(this.live.total);
    if (!this.past) {
      if (isWhole) this.grid.set(changes.values());
      else this.grid.update(changes);
    }
    this.draw();
  }

  #toLive() {
    if (this.past) {
      this.past = null;
      this.grid.columns(this.#columns());
    }
    this.app.keep({ epoch: null });
    if (this.live) this.grid.set(this.live.items.values());
    this.grid.redraw();
    this.draw();
  }

  #toPast(past) {
    const wasLive = !this.past;
    this.past = past;
    if (wasLive) this.grid.columns(this.#columns());
    this.app.keep({ epoch: past.epoch });
    this.grid.set(past.items.values());
    this.grid.redraw();
    this.draw();
  }

  #say(said, grade = "") {
    this.said.className = `note facts-said ${grade}`;
    this.said.textContent = said;
  }

  #draw() {
    const { live, past } = this;
    if (!live || this.isWrong) return;
    if (past) {
      this.#say(
        `${counted(past.items.size, "fact")}${past.isAll ? "" : ", maybe more that are not shown,"} at epoch ${past.epoch}. ` +
          "Those that came in it are marked.",
      );
      this.changesTitle.textContent = `Changes of epoch ${past.epoch}`;
      replace(this.changes, changeList(past.changes, past.more, "This epoch changed nothing that matches."));
      return;
    }
    this.changesTitle.textContent = "Newest changes";
    this.showRecent(live.recent);
    if (live.epoch === null) {
      this.#say(live.loading ? `reading the state: ${number(live.loading)} facts so far…` : "reading the state…");
      return;
    }
    const said = [`${counted(live.total, "fact")}, live`];
    if (live.omitted) said.push(`the first ${number(live.items.size)} are shown: narrow the pattern to see others`);
    if (live.merged) said.push(`showing the latest state, ten times a second at most; ${counted(live.merged, "epoch")} merged`);
    if (live.missed) said.push(`read anew ${counted(live.missed, "time")}: messages of between are missing`);
    if (live.loading) said.push(`reading the state: ${number(live.loading)} facts so far…`);
    this.#say(`${said.join("; ")}.`);
  }
}

const counted = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

function sinceText({ epoch, exact, micros }) {
  const time = micros ? clock(micros) : "";
  return `${exact ? "" : "≤ "}${epoch}${time ? ` · ${time}` : ""}`;
}

/** Returns how the label of a fact is shown, `present/2`, and the pattern of all such facts. */
function labelOf(fact) {
  if (!(fact instanceof Record)) return ["other values", "_"];
  const head = text(new Record(fact.label)).slice(0, -2);
  const fields = fact.fields.map((_, at) => `$${String.fromCharCode(97 + (at % 26))}${at < 26 ? "" : Math.floor(at / 26)}`);
  return [`${head}/${fields.length}`, `${head}(${fields.join(", ")})`];
}

/** Returns what rows are put in order by: numbers and texts as they are, all else as text. */
function comparable(value) {
  if (typeof value === "number" || typeof value === "string") return value;
  return typeof value?.valueOf() === "number" && !(value instanceof Record) ? value.valueOf() : text(value);
}
