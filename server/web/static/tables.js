/**
 * Tables: the rows of one observation that hold now.
 *
 * An observation has one table. After a lost connection the difference to the state is made from it, and the table of a
 * live map is the map. They are apart since they only compute: epochs go in, in whole.
 *
 * Always: what a table has is the sum of the epochs that were applied to it.
 */

import { SeveralRows, UsageError } from "./errors.js";
import { key } from "./packing.js";
import { text } from "./text.js";

/** Rows by their values. */
export class RowTable {
  #rows = new Map();

  /** Applies an epoch; O(changes). */
  apply({ added, removed }) {
    for (const row of added) this.#rows.set(key(row), row);
    for (const row of removed) this.#rows.delete(key(row));
  }

  /** Returns what comes and what goes, if these rows are all that hold from now on; O(rows). */
  difference(rows) {
    const now = new Map(rows.map((row) => [key(row), row]));
    const added = [...now].filter(([place]) => !this.#rows.has(place)).map(([, row]) => row);
    const removed = [...this.#rows].filter(([place]) => !now.has(place)).map(([, row]) => row);
    return { added, removed };
  }

  /** Forgets all rows. */
  clear() {
    this.#rows.clear();
  }
}

/** What the key of a row is: the value of one capture, or the list of the values of several. */
export class RowKey {
  #places;

  /** `names` are those of the captures, `by` is one of them or a list of some. */
  constructor(names, by) {
    /** True for keys that are values, false for lists of values. */
    this.isSingle = typeof by === "string";
    const wanted = this.isSingle ? [by] : [...by];
    this.#places = wanted.map((name) => names.indexOf(name));
    if (!wanted.length || this.#places.includes(-1)) {
      throw new UsageError(`by names captures of the pattern: no ${wanted.join(", ") || "names"} among ${names.join(", ") || "none"}`);
    }
  }

  /** Returns the key of a row. */
  of(row) {
    return this.isSingle ? row[this.#places[0]] : Object.freeze(this.#places.map((place) => row[place]));
  }

  /** Returns text or a number that is the same for equal keys alone. */
  placeOf(at) {
    return key(this.isSingle ? at : [...at]);
  }

  /**
   * Notes in an epoch which removed row each added one replaces: one of the same key, the first one by the first.
   *
   * An epoch that was put together of several is paired as what it is, their net difference.
   */
  pair(epoch) {
    const { added, removed } = epoch;
    const gone = new Map(); // places of removed rows by their keys, the first one last
    for (let at = removed.length - 1; at >= 0; at--) {
      const place = this.placeOf(this.of(removed[at]));
      if (gone.has(place)) gone.get(place).push(at);
      else gone.set(place, [at]);
    }
    epoch.replacedBy = removed.map(() => null);
    epoch.replaces = added.map((row) => {
      const at = gone.size ? gone.get(this.placeOf(this.of(row)))?.pop() : undefined;
      if (at === undefined) return null;
      epoch.replacedBy[at] = row;
      return removed[at];
    });
  }
}

const NONE = Object.freeze([]);

/**
 * Rows by their keys, in the order in which the keys appeared, and what has changed since changes were last taken.
 *
 * A key whose rows are replaced in one epoch keeps its place; one that was away for an epoch comes last. Of one key rows
 * are in the order in which they came. The client in Python has the same (`dataspace/client/epochs/tables.py`).
 *
 * Memory: an entry for each key, and one for each that has changed since and is there now, or was there then.
 */
export class KeyTable {
  #names;
  #key;
  #many;
  #cells = new Map(); // of keys: {at, rows: a map from a row's bytes to its entry, shown}
  #notes = null; // {at, old: rows} of keys that have changed since; null before the first state
  #turn = []; // pairs of a key and its note that are being taken one by one, the first one last

  constructor(names, by, many) {
    this.#names = names;
    this.#key = new RowKey(names, by);
    this.#many = many;
  }

  get size() {
    return this.#cells.size;
  }

  has(at) {
    return this.#cells.has(this.#key.placeOf(at));
  }

  /** Returns the row of a key, or its rows with `many`; `undefined` if there is none. Throws `SeveralRows`. */
  get(at) {
    const cell = this.#cells.get(this.#key.placeOf(at));
    return cell && this.#shown(cell);
  }

  /** Returns the keys. */
  keys() {
    return Array.from(this.#cells.values(), ({ at }) => at);
  }

  /** Returns pairs of a key and its row, or its rows with `many`. Throws `SeveralRows`. */
  entries() {
    return Array.from(this.#cells.values(), (cell) => [cell.at, this.#shown(cell)]);
  }

  /** Applies an epoch, and returns true if it changes something; O(changes). The first one is the state, and no change. */
  apply({ added, removed }) {
    const emptied = new Map();
    for (const row of removed) this.#remove(row, emptied);
    for (const row of added) this.#add(row);
    for (const [place, cell] of emptied) {
      if (cell.rows.size) continue;
      this.#cells.delete(place);
      if (this.#notes?.get(place)?.old === NONE) this.#notes.delete(place); // it came and went since
    }
    this.#notes ??= new Map();
    return added.length + removed.length > 0;
  }

  #add(row) {
    const at = this.#key.of(row);
    const place = this.#key.placeOf(at);
    let cell = this.#cells.get(place);
    this.#note(place, at, cell);
    if (!cell) this.#cells.set(place, (cell = { at, rows: new Map(), shown: null }));
    cell.rows.set(key(row), { row, shown: null });
    cell.shown = null;
  }

  #remove(row, emptied) {
    const at = this.#key.of(row);
    const place = this.#key.placeOf(at);
    const cell = this.#cells.get(place);
    if (!cell) return;
    this.#note(place, at, cell);
    cell.rows.delete(key(row));
    cell.shown = null;
    if (!cell.rows.size) emptied.set(place, cell);
  }

  #note(place, at, cell) {
    if (this.#notes && !this.#notes.has(place)) this.#notes.set(place, { at, old: cell?.rows.size ? [...cell.rows] : NONE });
  }

  /** Returns what comes and what goes, if these rows are all that hold from now on; O(rows). */
  difference(rows) {
    const now = new Map(rows.map((row) => [key(row), row]));
    const removed = [];
    for (const cell of this.#cells.values()) {
      for (const [place, { row }] of cell.rows) if (!now.delete(place)) removed.push(row);
    }
    return { added: [...now.values()], removed };
  }

  /** Returns the net difference since changes were last taken, in the order of the first changes: one for each key. */
  take() {
    const notes = new Map(this.#turn.splice(0).reverse()); // what these had is older than what the others say
    for (const [place, note] of this.#notes ?? []) if (!notes.has(place)) notes.set(place, note);
    this.#notes?.clear();
    return Array.from(notes, ([place, note]) => this.#change(place, note)).filter((change) => change !== null);
  }

  /** Returns the difference of one key, up to now, or null if there is none; the others keep theirs. */
  takeOne() {
    for (;;) {
      if (!this.#turn.length) {
        this.#turn = [...(this.#notes ?? [])].reverse();
        this.#notes?.clear();
      }
      if (!this.#turn.length) return null;
      const [place, note] = this.#turn.pop();
      this.#notes.delete(place);
      const change = this.#change(place, note);
      if (change) return change;
    }
  }

  /** Returns what has become of a key since its note; null if that is nothing. */
  #change(place, { at, old }) {
    const cell = this.#cells.get(place);
    if (isSame(old, cell)) return null;
    const change = { key: at };
    for (const [name, rows] of [["old", new Map(old)], ["now", cell ? new Map(cell.rows) : new Map()]]) {
      const get = () => (rows.size ? this.#seen(at, rows) : null);
      if (this.#isReadable(rows)) change[name] = get();
      else Object.defineProperty(change, name, { get, enumerable: true }); // refused once it is read
    }
    return Object.freeze(change);
  }

  #isReadable(rows) {
    return this.#many || rows.size <= 1;
  }

  /** Returns what a program sees of a key that is there; O(1) until its rows change. */
  #shown(cell) {
    return (cell.shown ??= this.#seen(cell.at, cell.rows));
  }

  #seen(at, rows) {
    if (!this.#isReadable(rows)) throw severalRows(at, rows);
    const shown = Array.from(rows.values(), (entry) => this.#rowOf(entry));
    return this.#many ? Object.freeze(shown) : shown[0];
  }

  /** Makes the row that a program sees once it is looked at: many never are. */
  #rowOf(entry) {
    return (entry.shown ??= Object.freeze(Object.fromEntries(entry.row.map((value, at) => [this.#names[at], value]))));
  }
}

function severalRows(at, rows) {
  const shown = Array.from(rows.values(), ({ row }) => text(row)).join(", ");
  const most = shown.length > 200 ? `${shown.slice(0, 200)}…` : shown;
  return new SeveralRows(`${rows.size} rows of the key ${text(at)}: ${most}; to have them all, make the map with many: true`);
}

/** True if the rows of a key are what they were, in this order. */
function isSame(old, cell) {
  if (old.length !== (cell?.rows.size ?? 0)) return false;
  let at = 0;
  for (const place of cell?.rows.keys() ?? []) if (old[at++][0] !== place) return false;
  return true;
}
