/** Values: records, floats, times and maps, what patterns are made of, and the order of all values. */

import { UsageError } from "./errors.js";
import { key } from "./packing.js";
import { floatText, text } from "./text.js";

/** A label with fields: `record("present", "Alice")`. */
export class Record {
  constructor(label, ...fields) {
    this.label = label;
    this.fields = fields;
  }

  toString() {
    return text(this);
  }
}

/** A float whose value is integral: `1.0` is another value than `1`. Fractions, NaN and infinities are numbers. */
export class Float {
  constructor(value) {
    this.value = Number(value);
  }

  valueOf() {
    return this.value;
  }

  toString() {
    return floatText(this.value);
  }
}

/** A moment, to the microsecond: seconds since 1970 UTC, and microseconds of the second. */
export class Time {
  constructor(seconds, micros = 0) {
    if (!(Number.isInteger(seconds) && seconds >= FIRST_SECOND && seconds <= LAST_SECOND)) {
      throw new UsageError(`a time is in the years 1 to 9999, not ${seconds} seconds from 1970`);
    }
    if (!(Number.isInteger(micros) && micros >= 0 && micros < 1_000_000)) {
      throw new UsageError(`microseconds of a time are from 0 to 999999, not ${micros}`);
    }
    this.seconds = seconds;
    this.micros = micros;
  }

  /** Returns the time of a `Date`, or of microseconds since 1970 UTC. */
  static of(moment) {
    const micros = moment instanceof Date ? moment.getTime() * 1000 : Number(moment);
    const seconds = Math.floor(micros / 1_000_000);
    return new Time(seconds, micros - seconds * 1_000_000);
  }

  /** Returns the time that a text such as `2026-01-01T00:00:00.000250Z` means. */
  static parse(said) {
    const found = TIME.exec(said);
    const millis = found && Date.parse(`${found[1]}${found[3]}`);
    if (!found || Number.isNaN(millis) || !isDay(found[1])) {
      throw new UsageError(`${JSON.stringify(said)} is no time, which is written 2026-01-31T23:59:59.5Z`);
    }
    return new Time(millis / 1000, Number((found[2] ?? ".").slice(1).padEnd(6, "0")));
  }

  /** Returns the `Date`, which has milliseconds: the rest is cut off. */
  toDate() {
    return new Date(this.seconds * 1000 + Math.floor(this.micros / 1000));
  }

  toString() {
    const whole = new Date(this.seconds * 1000).toISOString().slice(0, 19);
    return this.micros ? `${whole}.${String(this.micros).padStart(6, "0")}Z` : `${whole}Z`;
  }
}

const FIRST_SECOND = -62_135_596_800;
const LAST_SECOND = 253_402_300_799;
const TIME = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d{1,6})?(Z|[-+](?:[01]\d|2[0-3]):[0-5]\d)$/;

/** False for the 30th of February, which `Date.parse` may take for the 2nd of March, and for 24:00. */
function isDay(said) {
  const millis = Date.parse(`${said}Z`);
  return !Number.isNaN(millis) && new Date(millis).toISOString().startsWith(said);
}

/**
 * A map with a key that is no text, in the order of its keys; a map whose keys are all text is a plain object.
 *
 * It is made of pairs, and read by `get`, `has`, `size` and iteration. Keys are equal as values are: `1` is not `1.0`.
 */
export class ValueMap {
  constructor(pairs) {
    this.pairs = [...pairs].map(([at, value]) => [at, value]).sort((a, b) => compare(a[0], b[0]));
    this.places = new Map(this.pairs.map((pair) => [key(pair[0]), pair]));
    if (this.places.size !== this.pairs.length) throw new UsageError("a map has each key once");
  }

  get size() {
    return this.pairs.length;
  }

  get(at) {
    return this.places.get(key(at))?.[1];
  }

  has(at) {
    return this.places.has(key(at));
  }

  [Symbol.iterator]() {
    return this.pairs[Symbol.iterator]();
  }
}

/** Returns a record: a label and its fields. */
export const record = (label, ...fields) => new Record(label, ...fields);

/** Returns true for values that are the same: `1`, `1.0` and `true` are three, all NaN are one. */
export const equal = (one, other) => compare(one, other) === 0;

/** Returns below, above or 0 as the one value comes before, after or is the other, in the order of WIRE.md. */
export function compare(one, other) {
  const place = rank(one);
  const difference = place - rank(other);
  if (difference) return difference;
  switch (place) {
    case 1:
      return Number(one) - Number(other);
    case 3:
      return compareNumbers(one, other);
    case 4:
      return compareText(one, other);
    case 5:
      return compareLists(one, other, (a, b) => a - b);
    case 6: {
      const [a, b] = [asTime(one), asTime(other)];
      return a.seconds - b.seconds || a.micros - b.micros;
    }
    case 7:
      return compareLists(one, other, compare);
    case 8:
      return compare(one.label, other.label) || compareLists(one.fields, other.fields, compare);
    case 9:
      return compareLists(entries(one), entries(other), (a, b) => compare(a[0], b[0]) || compare(a[1], b[1]));
    default:
      return 0;
  }
}

export function rank(value) {
  switch (typeof value) {
    case "boolean":
      return 1;
    case "number":
      return Number.isNaN(value) ? 2 : 3;
    case "bigint":
      return 3;
    case "string":
      return 4;
  }
  if (value === null) return 0;
  if (typeof value !== "object") throw noValue(value);
  if (value instanceof Float) return Number.isNaN(value.value) ? 2 : 3;
  if (value instanceof Uint8Array) return 5;
  if (value instanceof Time || value instanceof Date) return 6;
  if (Array.isArray(value)) return 7;
  if (value instanceof Record) return 8;
  if (isMap(value)) return 9;
  throw noValue(value);
}

export const isFloat = (value) =>
  value instanceof Float || (typeof value === "number" && (!Number.isSafeInteger(value) || Object.is(value, -0)));

function compareNumbers(one, other) {
  const a = one instanceof Float ? one.value : one;
  const b = other instanceof Float ? other.value : other;
  if (a < b) return -1; // exact, also between a number and a BigInt
  if (a > b) return 1;
  const kinds = Number(isFloat(one)) - Number(isFloat(other));
  return kinds || (isFloat(one) ? Number(Object.is(b, -0)) - Number(Object.is(a, -0)) : 0);
}

/** By code points: half of a surrogate pair stands for a character above all others. */
function compareText(one, other) {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at++) {
    const a = one.charCodeAt(at);
    const b = other.charCodeAt(at);
    if (a !== b) return (isSurrogate(a) ? a + 0x10000 : a) - (isSurrogate(b) ? b + 0x10000 : b);
  }
  return one.length - other.length;
}

const isSurrogate = (code) => code >= 0xd800 && code < 0xe000;

function compareLists(one, other, by) {
  const length = Math.min(one.length, other.length);
  for (let at = 0; at < length; at++) {
    const difference = by(one[at], other[at]);
    if (difference) return difference;
  }
  return one.length - other.length;
}

export function isMap(value) {
  if (value instanceof ValueMap || value instanceof Map) return true;
  const kind = Object.getPrototypeOf(value);
  return kind === Object.prototype || kind === null;
}

/** Returns the pairs of a map in the order of their keys. */
export function entries(map) {
  if (map instanceof ValueMap) return map.pairs;
  if (map instanceof Map) return new ValueMap(map).pairs;
  const pairs = Object.entries(map);
  return pairs.length > 1 ? pairs.sort((a, b) => compareText(a[0], b[0])) : pairs;
}

export const asTime = (value) => (value instanceof Date ? Time.of(value) : value);

export const noValue = (value) =>
  new UsageError(`${typeof value === "object" ? value?.constructor?.name ?? "an object" : typeof value} is no value`);

/** Makes a map of pairs: a plain object where all keys are text, else a `ValueMap`. */
export function mapOf(pairs) {
  if (!pairs.every(([at]) => typeof at === "string")) return new ValueMap(pairs);
  const made = {};
  for (const [at, value] of pairs) setEntry(made, at, value);
  return made;
}

export function setEntry(object, at, value) {
  if (Object.hasOwn(object, at)) throw new UsageError(`a map has each key once, got ${JSON.stringify(at)} again`);
  if (at === "__proto__") {
    Object.defineProperty(object, at, { value, enumerable: true, configurable: true, writable: true });
  } else {
    object[at] = value;
  }
}
