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
  #cells = new Map(); // of keys: {at, rows: an entry or a map of several, shown}
  #notes = null; // {at, old: entries} of keys that have changed since; null before the first state
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
      if (cell.rows !== null) continue;
      this.#cells.delete(place);
      if (this.#notes?.get(place)?.old === NONE) this.#notes.delete(place); // it came and went since
    }
    this.#notes ??= new Map();
    return added.length + removed.length > 0;
  }

  #add(row) {
    const at = this.#key.of(row);
    const place = this.#key.placeOf(at);
    const entry = { row, shown: null };
    const cell = this.#cells.get(place);
    this.#note(place, at, cell);
    if (!cell) {
      this.#cells.set(place, { at, rows: entry, shown: null });
    } else {
      if (cell.rows === null) cell.rows = entry;
      else if (cell.rows instanceof Map) cell.rows.set(key(row), entry);
      else cell.rows = new Map([cell.rows, entry].map((each) => [key(each.row), each]));
      cell.shown = null;
    }
  }

  #remove(row, emptied) {
    const at = this.#key.of(row);
    const place = this.#key.placeOf(at);
    const cell = this.#cells.get(place);
    if (!cell) return;
    this.#note(place, at, cell);
    cell.shown = null;
    if (cell.rows instanceof Map) {
      cell.rows.delete(key(row));
      if (cell.rows.size === 1) [cell.rows] = cell.rows.values();
    } else {
      cell.rows = null; // the cell is still there, for its place in the order
      emptied.set(place, cell);
    }
  }

  #note(place, at, cell) {
    if (this.#notes && !this.#notes.has(place)) this.#notes.set(place, { at, old: entriesOf(cell) });
  }

  /** Returns what comes and what goes, if these rows are all that hold from now on; O(rows). */
  difference(rows) {
    const now = new Map(rows.map((row) => [key(row), row]));
    const removed = [];
    for (const cell of this.#cells.values()) {
      for (const { row } of entriesOf(cell)) if (!now.delete(key(row))) removed.push(row);
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
    const now = entriesOf(this.#cells.get(place));
    if (old.length === now.length && old.every((entry, n) => isSame(entry, now[n]))) return null;
    const change = { key: at };
    for (const [name, entries] of [["old", old], ["now", now]]) {
      const get = () => (entries.length ? this.#seen(at, entries) : null);
      if (this.#many || entries.length <= 1) change[name] = get();
      else Object.defineProperty(change, name, { get, enumerable: true }); // refused once it is read
    }
    return Object.freeze(change);
  }

  /** Returns what a program sees of a key that is there; O(1) until its rows change. */
  #shown(cell) {
    return (cell.shown ??= this.#seen(cell.at, entriesOf(cell)));
  }

  #seen(at, entries) {
    if (!this.#many && entries.length > 1) throw severalRows(at, entries);
    const shown = entries.map((entry) => this.#rowOf(entry));
    return this.#many ? Object.freeze(shown) : shown[0];
  }

  /** Makes the row that a program sees once it is looked at: many never are. */
  #rowOf(entry) {
    return (entry.shown ??= Object.freeze(Object.fromEntries(entry.row.map((value, at) => [this.#names[at], value]))));
  }
}

/** Returns the entries of a key, oldest first. */
function entriesOf(cell) {
  if (!cell || cell.rows === null) return NONE;
  return cell.rows instanceof Map ? [...cell.rows.values()] : [cell.rows];
}

const isSame = (one, other) => one === other || key(one.row) === key(other.row);

function severalRows(at, entries) {
  const rows = entries.map(({ row }) => text(row)).join(", ");
  const shown = rows.length > 200 ? `${rows.slice(0, 200)}…` : rows;
  return new SeveralRows(`${entries.length} rows of the key ${text(at)}: ${shown}; to have them all, make the map with many: true`);
}
