/**
 * Follows a pattern: the facts that match now, whole epoch by whole epoch, within bounds.
 *
 * The pattern is observed with the whole fact captured before its own captures, so each row has its fact. No more than
 * `most` facts are kept, the others counted. Changes come ten times a second at most, and a page that draws too slowly
 * reads no faster than it draws: what waits is merged in the daemon, and `merged` counts the epochs that are not shown
 * one by one.
 */

import { Record, Refused, key } from "../static/dataspace.js";

export const KEPT = 50_000;
export const RECENT = 200;
/** Milliseconds between two changes of what a page shows: nobody reads faster, and pages cost the daemon little. */
export const PACE = 100;

const WORK_MILLIS = 8;
const STATE_MILLIS = 40;
const HIDDEN_MILLIS = 500;
const HISTORY_EPOCHS = 2000;
const HISTORY_ROWS = 200_000;
const AGAIN = new Set(["slow-observer", "epoch-gone", "epoch-lost", "epoch-ahead"]);

/** Returns the pattern that captures the whole fact, and then what `pattern` captures. */
export const whole = (pattern) => new Record("$", null, null, pattern);

/** Returns the item of a row: the fact, its captures, and since when it is known to be there. */
export function itemOf([fact, ...captures], since) {
  return { key: String(key(fact)), fact, captures, since };
}

/** Waits until the page can be drawn; where it is out of sight, for a while. */
export function drawn() {
  return document.hidden
    ? new Promise((resolve) => setTimeout(resolve, HIDDEN_MILLIS))
    : new Promise((resolve) => requestAnimationFrame(() => resolve()));
}

export class Live {
  /** `onchange(changes, whole)` gets a map from keys to items, or null; with `whole` they are all that there is. */
  constructor(space, pattern, { onchange, onerror, onstate, most = KEPT }) {
    this.space = space;
    this.pattern = pattern;
    this.tell = onchange;
    this.onerror = onerror;
    this.onstate = onstate;
    this.most = most;
    this.items = new Map();
    this.omitted = 0;
    this.merged = 0;
    this.missed = 0;
    this.epoch = null;
    this.time = null;
    /** The newest changes, the newest first: `{sign, fact, epoch, time}`. */
    this.recent = [];
    this.loading = 0;
    this.over = false;
    this.#follow();
  }

  /** How many facts match. */
  get total() {
    return this.items.size + this.omitted;
  }

  stop() {
    this.over = true;
    this.stream?.close();
    this.history?.close();
  }

  async #follow() {
    while (!this.over) {
      try {
        this.stream = this.space.observe(whole(this.pattern), { quiet: true, parts: true, pace: PACE });
        await this.#read(this.stream);
        return;
      } catch (error) {
        if (this.over) return;
        if (!(error instanceof Refused && AGAIN.has(error.code))) return this.onerror(error);
        this.missed++; // messages of these epochs are lost to this page; the state is read anew
        await drawn();
      }
    }
  }

  async #read(stream) {
    let staged = null;
    let began = performance.now();
    for await (const part of stream) {
      if (this.over) return;
      if (part.begins || !staged) staged = this.#stage(part);
      this.#add(staged, part);
      if (!part.more) {
        this.#commit(staged, part);
        staged = null;
        if (this.omitted && this.items.size < this.most / 2) throw new Refused("epoch-gone", "there is room for more rows");
      } else if (part.state) {
        this.loading = staged.items.size + staged.omitted;
        this.onstate();
      }
      if (performance.now() - began > (part.state ? STATE_MILLIS : WORK_MILLIS)) {
        await drawn();
        began = performance.now();
      }
    }
  }

  #stage(part) {
    const state = part.state;
    return { state, items: state ? new Map() : this.items, omitted: state ? 0 : this.omitted, changes: new Map(), first: part.first };
  }

  /** Takes a part: of a state into items of its own, of changes into a map that is applied at the end of the epoch. */
  #add(staged, { number, added, removed, messages, conflated, state, micros }) {
    const since = { epoch: number, exact: !conflated && !state, micros: state ? 0 : micros };
    const news = [];
    for (const row of added) {
      if (state && staged.items.size >= this.most) {
        staged.omitted++;
        continue;
      }
      const item = itemOf(row, since);
      if (!state) staged.changes.set(item.key, item);
      else staged.items.set(item.key, item);
      if (!state && news.length < RECENT) news.push({ sign: "+", fact: item.fact, epoch: number, micros });
    }
    for (const [fact] of messages) if (news.length < RECENT) news.push({ sign: "!", fact, epoch: number, micros });
    for (const [fact] of removed) {
      const at = String(key(fact));
      const came = staged.changes.get(at);
      if (!came) staged.changes.set(at, null);
      if (news.length < RECENT) news.push({ sign: "−", fact, epoch: number, micros });
    }
    if (news.length) this.recent = [...news.reverse(), ...this.recent].slice(0, RECENT);
  }

  #commit(staged, part) {
    this.epoch = part.number;
    this.time = part.micros;
    this.loading = 0;
    if (part.conflated) this.merged += part.number - part.first;
    if (staged.state) {
      const isFirst = this.items.size === 0;
      this.items = staged.items;
      this.omitted = staged.omitted;
      this.tell(this.items, true);
      if (isFirst && this.items.size) this.#lookBack(part.number);
      return;
    }
    const told = new Map();
    for (const [at, item] of staged.changes) {
      if (item === null) {
        if (this.items.delete(at)) told.set(at, null);
        else if (this.omitted) this.omitted--;
      } else if (this.items.has(at) || this.items.size < this.most) {
        this.items.set(at, item);
        told.set(at, item);
      } else this.omitted++;
    }
    this.tell(told, false);
  }

  /** Learns from the log since which epoch the facts are there, as far back as some thousand epochs. */
  async #lookBack(upto) {
    try {
      const { oldest, epoch } = await this.space.request("frontier", { after: 0 });
      const from = Math.max(oldest - 1, upto - HISTORY_EPOCHS);
      const to = Math.min(upto, epoch);
      if (this.over || to <= from) return;
      let rows = 0;
      this.history = this.space.observe(whole(this.pattern), { after: from, upto: to, quiet: true, parts: true, policy: "wait" });
      for await (const { number, micros, added, removed } of this.history) {
        for (const [fact] of added) {
          const item = this.items.get(String(key(fact)));
          if (item && !(item.since.epoch > to)) item.since = { epoch: number, exact: true, micros };
        }
        rows += added.length + removed.length;
        if (rows > HISTORY_ROWS) break;
      }
      this.onstate(true);
    } catch {
      // of the space `system` there is no log, of others it may not go back so far: then it says "at or before"
    }
  }
}
