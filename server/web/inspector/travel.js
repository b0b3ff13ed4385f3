/** Time travel: a slider over the epochs that the log retains, and the state of a pattern at the one that is chosen. */

import { clock, h, number } from "./dom.js";
import { changeAfter, changeBefore, changesAt, stateAt } from "./past.js";

const PAUSE = 100;
const LOOK = 1000;
const PAGE = 100;

export class Travel {
  #asked = null;
  #timer = 0;
  #turn = 0;
  #streams = new Set();

  constructor(app, { onlive, onpast, most }) {
    Object.assign(this, { app, onlive, onpast, most, pattern: null, oldest: 1, newest: 0, epoch: null, said: "" });
    this.slider = h("input", {
      id: "slider",
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": "Epoch",
      oninput: () => this.#slid(),
      onkeydown: (event) => this.#key(event),
    });
    this.field = h("input", {
      id: "epoch",
      class: "number",
      type: "number",
      min: 0,
      "aria-label": "Epoch number",
      placeholder: "epoch",
      onchange: () => this.field.value !== "" && this.to(Number(this.field.value)),
    });
    this.output = h("output", { id: "when", for: "slider" }, "live");
    this.liveButton = h("button", { type: "button", id: "live", "aria-pressed": "true", onclick: () => this.toLive() }, "Live");
    const beside = (id, said, title, find) =>
      h("button", { type: "button", id, title, onclick: () => this.#beside(find) }, said);
    this.element = h(
      "div",
      { class: "travel panel", role: "group", "aria-label": "Time travel", "data-past": "false" },
      beside("before", "◀ change", "The change before this epoch", (at) => changeBefore(app.space, this.pattern, at, this.oldest)),
      this.slider,
      beside("after", "change ▶", "The change after this epoch", (at) => changeAfter(app.space, this.pattern, at, this.newest)),
      this.field,
      this.liveButton,
      this.output,
    );
    this.ends = app.poll(LOOK, () => this.#look());
  }

  /** Begins with another pattern, at the epoch that is shown. */
  of(pattern) {
    this.pattern = pattern;
    if (this.epoch !== null) this.#ask(this.epoch);
  }

  stop() {
    this.ends();
    clearTimeout(this.#timer);
    this.#turn = Infinity;
    for (const stream of this.#streams) stream.close();
  }

  /** Travels to an epoch; to the nearest that the log retains where it is not there. */
  async to(epoch) {
    if (!Number.isSafeInteger(epoch) || !this.pattern) return;
    if (!this.newest) await this.#look().catch((error) => this.app.fail(error));
    this.#ask(Math.max(this.oldest - 1, Math.min(epoch, this.newest)));
  }

  toLive() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#asked = null;
    this.#turn++;
    this.epoch = null;
    this.slider.value = String(this.newest); // at once: the next look may be some seconds away
    this.#show("live");
    this.onlive();
  }

  /** Learns which epochs there are. */
  async #look() {
    const { epoch, oldest } = await this.app.space.request("frontier", { after: 0 });
    const atEnd = this.epoch === null;
    this.oldest = Number(oldest);
    this.newest = Number(epoch);
    this.slider.min = String(Math.max(0, this.oldest - 1));
    this.slider.max = String(this.newest);
    if (atEnd && document.activeElement !== this.slider) this.slider.value = String(this.newest);
    if (atEnd && !this.isLooking) this.#show("live");
  }

  #slid() {
    const at = Number(this.slider.value);
    if (at >= this.newest) this.toLive();
    else this.#ask(at);
  }

  /** Page keys go by many epochs; a slider of a browser would go by a tenth of all. */
  #key(event) {
    const by = { PageUp: PAGE, PageDown: -PAGE }[event.key];
    if (!by) return;
    event.preventDefault();
    this.slider.value = String(Number(this.slider.value) + by);
    this.#slid();
  }

  async #beside(find) {
    if (!this.pattern || this.isLooking) return;
    this.isLooking = true;
    this.output.textContent = "looking in the log…";
    const from = this.epoch;
    try {
      if (!this.newest) await this.#look();
      const found = await find(this.epoch ?? this.newest + 1);
      if (this.epoch === from && found !== null) this.#ask(found);
      else if (found === null) this.app.say("no change of this pattern in that direction");
    } catch (error) {
      this.app.fail(error);
    }
    this.isLooking = false;
    if (this.epoch === from) this.#show(from === null ? "live" : `epoch ${from}`);
  }

  /** Asks for the state at an epoch, at most once in a tenth of a second; an answer that is out of date is dropped. */
  #ask(epoch) {
    this.epoch = epoch;
    this.slider.value = String(epoch);
    this.#show(`epoch ${epoch}…`);
    this.#asked = epoch;
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      if (this.#asked !== null) this.#read(this.#asked);
    }, this.#turn ? PAUSE : 0);
  }

  async #read(epoch) {
    const turn = ++this.#turn;
    for (const stream of this.#streams) stream.close();
    this.#streams.clear();
    const hold = (stream) => this.#streams.add(stream);
    try {
      const [state, changed] = await Promise.all([
        stateAt(this.app.space, this.pattern, epoch, this.most, hold),
        changesAt(this.app.space, this.pattern, epoch, hold),
      ]);
      if (turn !== this.#turn) return;
      const time = changed.time || state.time;
      this.#show(`epoch ${epoch}${time ? `, ${clock(time)}` : ""}`);
      this.onpast({ epoch, time, items: state.items, isAll: state.isAll, changes: changed.changes, more: changed.more, keys: changed.keys });
    } catch (error) {
      if (turn !== this.#turn) return;
      this.app.fail(error);
      this.toLive();
    }
  }

  #show(said) {
    const isPast = this.epoch !== null;
    this.element.dataset.past = String(isPast);
    this.liveButton.setAttribute("aria-pressed", String(!isPast));
    this.liveButton.className = isPast ? "primary" : "";
    this.output.textContent = isPast ? said : `live, epoch ${number(this.newest)}`;
    this.slider.setAttribute("aria-valuetext", isPast ? said : "now");
    if (document.activeElement !== this.field) this.field.value = isPast ? String(this.epoch) : "";
  }
}
