/** What there is about one fact: its text, who owns it, since when it is there, and when it came and went. */

import { Record, text } from "../static/dataspace.js";
import { clock, h, number, replace } from "./dom.js";
import { historyOf } from "./past.js";

const CELL = 200;
const SHOWN = 20_000;
const MARKS = { "+": ["added", "came"], "−": ["removed", "went"], "!": ["message", "sent"] };

/** Returns a text cut to so many characters. */
export const clip = (said, most = CELL) => (said.length > most ? `${said.slice(0, most)}…` : said);

/** Returns the lines of some changes; `ontravel(epoch)` makes their epochs buttons. */
export function changeList(changes, more, nothing, ontravel = null) {
  if (!changes.length) return [h("li", { class: "note" }, nothing)];
  const lines = changes.map((each) => changeLine(each, ontravel));
  return more ? [...lines, h("li", { class: "note" }, `and ${number(more)} more`)] : lines;
}

function changeLine({ sign, fact, epoch, micros }, ontravel) {
  const [kind, word] = MARKS[sign];
  const at = ontravel
    ? h("button", { type: "button", class: "link", title: `epoch ${epoch}, ${clock(micros)}: travel there`, onclick: () => ontravel(epoch) }, String(epoch))
    : h("span", { class: "at" }, String(epoch));
  return h(
    "li",
    { "data-change": kind },
    h("span", { class: `sign ${kind}`, "aria-hidden": "true" }, sign),
    h("span", { class: "off-screen" }, `${word}:`),
    at,
    fact === undefined ? h("span", {}, `${word} ${clock(micros)}`) : h("span", {}, clip(text(fact))),
  );
}

/**
 * Returns a function that shows changes, the newest first, in `place`.
 *
 * Lines of changes that were shown before stay the same elements: a line keeps its focus, and ten updates in a second cost their
 * new lines only.
 */
export function changeLines(place, nothing, ontravel) {
  let shown = null;
  return (changes) => {
    const newer = shown?.length ? changes.indexOf(shown[0]) : -1;
    if (newer < 0 || place.children.length !== shown.length) replace(place, changeList(changes, 0, nothing, ontravel));
    else if (newer > 0) {
      place.prepend(...changes.slice(0, newer).map((each) => changeLine(each, ontravel)));
      while (place.children.length > changes.length) place.lastElementChild.remove();
    }
    shown = changes;
  };
}

export class Detail {
  #turn = 0;
  #stream = null;

  constructor(app, owners, travel) {
    this.app = app;
    this.owners = owners;
    this.travel = travel;
    this.element = h("section", { class: "panel", id: "detail", "aria-label": "The fact that was chosen" });
    this.show(null);
  }

  /** Shows a fact; null for none. */
  show(item) {
    const turn = ++this.#turn;
    this.#stream?.close();
    if (!item) return replace(this.element, h("h2", {}, "Fact"), h("p", { class: "note" }, "Choose a row to see its owners and its past."));
    const value = [h("h2", {}, "Fact"), h("p", { class: "value", id: "fact" }, clip(text(item.fact), SHOWN))];
    if (this.app.spaceName === "system") return replace(this.element, ...value); // it has no log, and one owner
    const owners = h("ul", { class: "list", id: "owners" }, h("li", { class: "note" }, "…"));
    const past = h("div", {});
    const since = item.since.exact
      ? `since epoch ${item.since.epoch}${item.since.micros ? `, ${clock(item.since.micros)}` : ""}`
      : `there at epoch ${item.since.epoch}, and maybe before`;
    replace(
      this.element,
      ...value,
      h("p", { class: "note" }, since),
      h("h2", {}, "Owners now"),
      owners,
      h(
        "p",
        { class: "buttons" },
        h("button", { type: "button", id: "history", onclick: () => this.#history(item, past, turn) }, "When it came and went"),
        h("button", { type: "button", id: "copy", onclick: () => this.#copy(item) }, "Copy"),
      ),
      past,
    );
    if (matchMedia("(max-width: 640px)").matches) this.element.scrollIntoView({ block: "nearest" });
    if (this.app.may("inspect")) this.#owners(item, owners, turn);
    else replace(owners, h("li", { class: "note" }, "This token may not inspect, so it does not see owners."));
    return undefined;
  }

  async #owners(item, place, turn) {
    try {
      const claims = await this.owners.ofFact(item.fact);
      if (turn !== this.#turn) return;
      replace(place, ...(claims.length ? claims.map((each) => h("li", { class: "mono" }, each)) : [h("li", { class: "note" }, "nobody: it is not there now")]));
    } catch (error) {
      if (turn === this.#turn) this.app.fail(error);
    }
  }

  async #history(item, place, turn) {
    replace(place, h("p", { class: "note" }, "reading the log…"));
    try {
      const { oldest, epoch } = await this.app.space.request("frontier", { after: 0 });
      const found = await historyOf(this.app.space, new Record("lit", item.fact), oldest, epoch, (stream) => {
        this.#stream = stream;
        if (turn !== this.#turn) stream.close();
      });
      if (turn !== this.#turn) return;
      const lines = changeList(found, 0, `Not in the log, which goes back to epoch ${oldest}.`, (at) => this.travel.to(at));
      replace(place, h("ul", { class: "list changes", "aria-label": "When it came and went" }, ...lines));
    } catch (error) {
      if (turn === this.#turn) this.app.fail(error);
    }
  }

  async #copy(item) {
    try {
      await navigator.clipboard.writeText(text(item.fact));
      this.app.say("copied");
    } catch {
      this.app.say("the browser did not allow to copy"); // over plain HTTP from another machine there is no clipboard
    }
  }

  stop() {
    this.#turn++;
    this.#stream?.close();
  }
}
