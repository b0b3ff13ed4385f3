/** Live maps: what matches a pattern now, by key, as objects that a page can show. */

import { again, Closed, UsageError } from "./errors.js";
import { Observation } from "./observations.js";
import { key } from "./packing.js";

const OPTIONS = ["durable", "pace", "quiet"];

/**
 * What matches a pattern, kept up to date: a map from the captures that `by` names to rows.
 *
 * A row is an object with the captures by name, and never changes. With one name in `by` keys are the values of that
 * capture, with several they are lists of values. Keys are in the order in which they appeared. If several facts have one
 * key, the newest is in the map. Each epoch is applied whole. The map goes on over lost connections, and shows meanwhile what was last known.
 */
export class LiveMap {
  #observation;
  #places;
  #single;
  #rows = new Map(); // the key's bytes to {at, rows}: the rows of that key, oldest first
  #listeners = new Set();
  #snapshot = null;
  #ready;

  constructor(session, pattern, by, options) {
    for (const name of Object.keys(options)) {
      if (!OPTIONS.includes(name)) throw new UsageError(`no option ${name}, there are ${OPTIONS.join(", ")}`);
    }
    this.#single = typeof by === "string";
    const names = this.#single ? [by] : [...by];
    /** The epoch that the map is of; 0 before the first. */
    this.epoch = 0;
    /** Why the map is not kept up to date any more; null as long as it is. */
    this.error = null;
    this.#observation = new Observation(session, pattern, options);
    this.#places = names.map((name) => this.#observation.names.indexOf(name));
    if (!names.length || this.#places.includes(-1)) {
      this.#observation.close();
      const known = this.#observation.names.join(", ") || "none";
      throw new UsageError(`a live map is by captures of its pattern: no ${names.join(", ") || "names"} among ${known}`);
    }
    this.#ready = this.#follow();
    this.#ready.catch(() => {}); // `error` has it as well
  }

  /** Resolves to this map when it has the first state; rejects if that does not come. */
  get ready() {
    return this.#ready;
  }

  get size() {
    return this.#rows.size;
  }

  /** The row of a key; `undefined` if there is none. */
  get(at) {
    return this.#rows.get(this.#keyOf(at))?.rows.at(-1);
  }

  has(at) {
    return this.#rows.has(this.#keyOf(at));
  }

  *keys() {
    for (const { at } of this.#rows.values()) yield at;
  }

  *values() {
    for (const { rows } of this.#rows.values()) yield rows.at(-1);
  }

  *entries() {
    for (const { at, rows } of this.#rows.values()) yield [at, rows.at(-1)];
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  /** The rows as a frozen list, which is the same one until something changes. */
  get snapshot() {
    return (this.#snapshot ??= Object.freeze([...this.values()]));
  }

  /** Calls a function after each change, and at the end; returns a function that stops that. */
  subscribe(call) {
    const each = { call };
    this.#listeners.add(each);
    return () => this.#listeners.delete(each);
  }

  /** Ends the observation; what is in the map stays. */
  close() {
    this.#observation.close();
    this.error ??= new Closed("the live map was closed");
  }

  #keyOf(at) {
    return key(this.#single ? [at] : [...at]);
  }

  async #follow() {
    const first = await this.#observation.read().catch((error) => this.#end(error));
    if (first === undefined) throw again(this.error ?? this.#end(new Closed("the observation has ended")));
    this.#apply(first);
    this.#goOn();
    return this;
  }

  async #goOn() {
    try {
      for await (const epoch of this.#observation) this.#apply(epoch);
      this.#end(new Closed("the observation has ended"));
    } catch (error) {
      this.#end(error);
    }
  }

  #end(error) {
    this.error ??= error;
    this.#tell();
    return undefined;
  }

  #apply({ number, added, removed }) {
    this.epoch = number;
    for (const row of added) this.#add(row); // first, so that a key whose row changes keeps its place
    for (const row of removed) this.#remove(row);
    if (!added.length && !removed.length) return;
    this.#snapshot = null;
    this.#tell();
  }

  #add(row) {
    const parts = this.#places.map((place) => row[place]);
    const place = key(parts);
    const known = this.#rows.get(place) ?? { at: this.#single ? parts[0] : Object.freeze(parts), rows: [], keys: [] };
    const { names } = this.#observation;
    known.rows.push(Object.freeze(Object.fromEntries(row.map((value, at) => [names[at], value]))));
    known.keys.push(key(row));
    this.#rows.set(place, known);
  }

  #remove(row) {
    const place = key(this.#places.map((at) => row[at]));
    const known = this.#rows.get(place);
    const at = known?.keys.indexOf(key(row)) ?? -1;
    if (at < 0) return;
    known.rows.splice(at, 1);
    known.keys.splice(at, 1);
    if (!known.rows.length) this.#rows.delete(place);
  }

  #tell() {
    for (const { call } of [...this.#listeners]) {
      try {
        call(this);
      } catch (error) {
        queueMicrotask(() => {
          throw error; // the application's, which changes nothing here
        });
      }
    }
  }
}
