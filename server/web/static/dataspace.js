/**
 * A client of the dataspace daemon for browsers, Node, Deno and Bun: one module, no dependencies, no build step.
 *
 *     const space = await connect("ws://127.0.0.1:7378/ws", { name: "page" });
 *     const claim = await space.assert(record("present", "Alice"));
 *     for await (const epoch of space.observe("present($who)")) console.log(epoch.added, epoch.removed);
 *
 * Parts, from the ground up: values, their msgpack bytes, their JSON, their text, errors, turns in flight,
 * observations, the connection, the space.  WIRE.md is the protocol, JAVASCRIPT.md has examples.
 *
 * Always: turns take effect in the order in which they were submitted, and none twice; an observation yields whole
 * epochs, in ascending order, without a gap over lost connections; what waits in it is bounded by its credit.
 */

// -- errors -------------------------------------------------------------------------------------------------------

/** The base of all errors here; `code` is one of the wire's, or empty. */
export class DataspaceError extends Error {
  constructor(code, text) {
    super(code ? `${code}: ${text}` : text);
    this.code = code;
    this.text = text;
    this.name = new.target.name;
  }
}

/** The daemon refused a turn, a stream or a request, and nothing of it has happened. */
export class Refused extends DataspaceError {}

/** One side broke the protocol, or the daemon ended the session; the client does not reconnect. */
export class ProtocolError extends DataspaceError {}

/** This program used a function in a way that has no meaning. */
export class UsageError extends DataspaceError {
  constructor(text) {
    super("", text);
  }
}

/** Nothing answers at the address. */
export class Unreachable extends UsageError {}

/** The connection was lost before the answer. */
export class Broken extends UsageError {}

/** The space was closed by this program. */
export class Closed extends UsageError {}

/** The client reconnected to another space, for which a turn without an answer was not meant. */
export class AnotherSpace extends UsageError {}

// -- values -------------------------------------------------------------------------------------------------------

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

/** Returns the pattern that matches anything, or anything of a class such as `"int"`. */
export const any = (ofClass) => (ofClass === undefined ? new Record("_") : new Record("_", ofClass));

/** Returns the pattern that captures what is in its place, under a name, of a class, and where `sub` matches. */
export const capture = (name = null, { class: ofClass = null, sub = any() } = {}) =>
  new Record("$", name, ofClass, sub);

/** Returns the pattern for exactly this value, even if it looks like a pattern. */
export const lit = (value) => new Record("lit", value);

/** Returns the pattern that allows no further parts than those of the pattern in it. */
export const exact = (pattern) => new Record("exact", pattern);

/** Returns the names of the captures of a pattern, in the order of the rows; an unnamed one has its position. */
export function captureNames(pattern) {
  const names = [];
  nameCaptures(typeof pattern === "string" ? parse(pattern) : pattern, names);
  return names.map((name, at) => name ?? String(at));
}

function nameCaptures(pattern, names) {
  if (Array.isArray(pattern)) {
    for (const part of pattern) nameCaptures(part, names);
  } else if (pattern instanceof Record) {
    if (pattern.label === "lit" || pattern.label === "_") return;
    if (pattern.label === "$") {
      if (pattern.fields[0] === null || !names.includes(pattern.fields[0])) names.push(pattern.fields[0]);
      nameCaptures(pattern.fields[2], names);
    } else {
      for (const part of pattern.fields) nameCaptures(part, names);
    }
  } else if (isMap(pattern)) {
    for (const [, part] of entries(pattern)) nameCaptures(part, names);
  }
}

/** Returns true for values that are the same: `1`, `1.0` and `true` are three, all NaN are one. */
export const equal = (one, other) => compare(one, other) === 0;

/**
 * Returns text or a number that is the same for equal values alone, to be the key of a `Map` or an element of a `Set`.
 */
export function key(value) {
  if (typeof value === "string") return `\u0100${value}`; // no text of packed bytes has this character
  if (Number.isSafeInteger(value) && !Object.is(value, -0)) return value;
  const bytes = pack(value);
  let made = "";
  for (let at = 0; at < bytes.length; at += 4096) {
    made += String.fromCharCode.apply(null, bytes.subarray(at, at + 4096));
  }
  return made;
}

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

function rank(value) {
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

const isFloat = (value) =>
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

function isMap(value) {
  if (value instanceof ValueMap || value instanceof Map) return true;
  const kind = Object.getPrototypeOf(value);
  return kind === Object.prototype || kind === null;
}

/** Returns the pairs of a map in the order of their keys. */
function entries(map) {
  if (map instanceof ValueMap) return map.pairs;
  if (map instanceof Map) return new ValueMap(map).pairs;
  const pairs = Object.entries(map);
  return pairs.length > 1 ? pairs.sort((a, b) => compareText(a[0], b[0])) : pairs;
}

const asTime = (value) => (value instanceof Date ? Time.of(value) : value);

const noValue = (value) =>
  new UsageError(`${typeof value === "object" ? value?.constructor?.name ?? "an object" : typeof value} is no value`);

/** Makes a map of pairs: a plain object where all keys are text, else a `ValueMap`. */
function mapOf(pairs) {
  if (!pairs.every(([at]) => typeof at === "string")) return new ValueMap(pairs);
  const made = {};
  for (const [at, value] of pairs) put(made, at, value);
  return made;
}

function put(object, at, value) {
  if (Object.hasOwn(object, at)) throw new UsageError(`a map has each key once, got ${JSON.stringify(at)} again`);
  if (at === "__proto__") {
    Object.defineProperty(object, at, { value, enumerable: true, configurable: true, writable: true });
  } else {
    object[at] = value;
  }
}

// -- msgpack: writing ---------------------------------------------------------------------------------------------

const DEPTH = 64;
const RECORD = 1;
const BIG_INTEGER = 2;
const MAP = 3;
const MAP_ELEMENTS = 8;

const encoder = new TextEncoder();
const TWO_32 = 2 ** 32;

let out = new Uint8Array(4096);
let outView = new DataView(out.buffer);
let end = 0;
let elements = 0;

/** Returns the bytes of a value, each in its shortest form; throws `UsageError` for what is none. */
export function pack(value, depth = DEPTH) {
  end = elements = 0;
  write(value, depth);
  const bytes = out.slice(0, end);
  if (out.length > 1 << 20) {
    out = new Uint8Array(4096); // one large value should not be remembered for ever
    outView = new DataView(out.buffer);
  }
  return bytes;
}

/** Makes room for so many bytes. */
function need(count) {
  if (end + count > out.length) {
    const larger = new Uint8Array(Math.max(2 * out.length, end + count));
    larger.set(out.subarray(0, end));
    out = larger;
    outView = new DataView(out.buffer);
  }
}

function write(value, depth) {
  elements++;
  switch (typeof value) {
    case "string":
      return writeText(value);
    case "number":
      return Number.isSafeInteger(value) && !Object.is(value, -0) ? writeInteger(value) : writeFloat(value);
    case "boolean":
      return writeByte(value ? 0xc3 : 0xc2);
    case "bigint":
      return writeBigInt(value);
    case "object":
      if (value === null) return writeByte(0xc0);
      return writeObject(value, depth);
    default:
      throw noValue(value);
  }
}

function writeObject(value, depth) {
  if (value instanceof Float) return writeFloat(value.value);
  if (value instanceof Uint8Array) return writeBytes(value);
  if (value instanceof Time || value instanceof Date) return writeTime(asTime(value));
  if (depth <= 0) throw new UsageError("nested too deeply: at most 64 levels, and fewer in a turn");
  if (value instanceof Record) {
    elements++;
    const start = beginExtension();
    writeHead(value.fields.length + 1, 0x90, 16, 0xdc);
    write(value.label, depth - 1);
    for (const field of value.fields) write(field, depth - 1);
    endExtension(start, RECORD);
  } else if (Array.isArray(value)) {
    writeHead(value.length, 0x90, 16, 0xdc);
    for (const part of value) write(part, depth - 1);
  } else if (isMap(value)) {
    writeMap(entries(value), depth - 1);
  } else {
    throw noValue(value);
  }
}

function writeMap(pairs, depth) {
  elements += MAP_ELEMENTS - 1;
  if (pairs.every(([at]) => typeof at === "string")) {
    writeHead(pairs.length, 0x80, 16, 0xde);
    for (const [at, value] of pairs) {
      write(at, depth);
      write(value, depth);
    }
    return;
  }
  elements++;
  const start = beginExtension();
  writeHead(2 * pairs.length, 0x90, 16, 0xdc);
  for (const [at, value] of pairs) {
    write(at, depth);
    write(value, depth);
  }
  endExtension(start, MAP);
}

function writeByte(byte) {
  need(1);
  out[end++] = byte;
}

/** Writes the head of an array or a map: in one byte below `few`, else behind `wide`, or the byte after that. */
function writeHead(count, short, few, wide) {
  need(5);
  if (count < few) {
    out[end++] = short | count;
  } else if (count < 0x10000) {
    out[end++] = wide;
    outView.setUint16(end, count);
    end += 2;
  } else {
    out[end++] = wide + 1;
    outView.setUint32(end, count);
    end += 4;
  }
}

/** Writes the head of text or bytes: behind `wide`, or one of the two bytes after that. */
function writeLength(length, wide) {
  if (length < 0x100) {
    out[end++] = wide;
    out[end++] = length;
  } else if (length < 0x10000) {
    out[end++] = wide + 1;
    outView.setUint16(end, length);
    end += 2;
  } else {
    out[end++] = wide + 2;
    outView.setUint32(end, length);
    end += 4;
  }
}

function writeText(said) {
  const length = said.length;
  if (length < 32) {
    need(5 + 3 * length);
    const start = end + 1;
    let at = 0;
    for (; at < length; at++) {
      const code = said.charCodeAt(at);
      if (code > 0x7f) break;
      out[start + at] = code;
    }
    if (at === length) {
      out[end] = 0xa0 | length;
      end = start + length;
      return;
    }
  }
  if (LONE.test(said)) throw new UsageError("text with half of a surrogate pair is no value");
  need(5 + 3 * length);
  const bytes = encoder.encode(said);
  if (bytes.length < 32) out[end++] = 0xa0 | bytes.length;
  else writeLength(bytes.length, 0xd9);
  out.set(bytes, end);
  end += bytes.length;
}

const LONE = /\p{Surrogate}/u;

function writeBytes(bytes) {
  need(5 + bytes.length);
  writeLength(bytes.length, 0xc4);
  out.set(bytes, end);
  end += bytes.length;
}

function writeInteger(n) {
  need(9);
  if (n >= 0) {
    if (n < 0x80) {
      out[end++] = n;
    } else if (n < 0x100) {
      out[end++] = 0xcc;
      out[end++] = n;
    } else if (n < 0x10000) {
      out[end++] = 0xcd;
      outView.setUint16(end, n);
      end += 2;
    } else if (n < TWO_32) {
      out[end++] = 0xce;
      outView.setUint32(end, n);
      end += 4;
    } else {
      writeHalves(0xcf, n);
    }
  } else if (n >= -0x20) {
    out[end++] = n & 0xff;
  } else if (n >= -0x80) {
    out[end++] = 0xd0;
    out[end++] = n & 0xff;
  } else if (n >= -0x8000) {
    out[end++] = 0xd1;
    outView.setInt16(end, n);
    end += 2;
  } else if (n >= -0x80000000) {
    out[end++] = 0xd2;
    outView.setInt32(end, n);
    end += 4;
  } else {
    writeHalves(0xd3, n);
  }
}

function writeHalves(head, n) {
  const high = Math.floor(n / TWO_32);
  out[end++] = head;
  outView.setInt32(end, high);
  outView.setUint32(end + 4, n - high * TWO_32);
  end += 8;
}

function writeBigInt(n) {
  if (n >= Number.MIN_SAFE_INTEGER && n <= Number.MAX_SAFE_INTEGER) return writeInteger(Number(n));
  need(9);
  if (n >= 0n ? n < 1n << 64n : n >= -(1n << 63n)) {
    out[end++] = n >= 0n ? 0xcf : 0xd3;
    outView.setBigUint64(end, BigInt.asUintN(64, n));
    end += 8;
    return;
  }
  const size = bigSize(n);
  const digits = BigInt.asUintN(8 * size, n).toString(16).padStart(2 * size, "0");
  const start = beginExtension();
  need(size);
  for (let at = 0; at < size; at++) out[end++] = parseInt(digits.slice(2 * at, 2 * at + 2), 16);
  endExtension(start, BIG_INTEGER);
}

/** Returns the bytes of two's complement that an integer needs, its sign included. */
function bigSize(n) {
  const digits = (n >= 0n ? n : ~n).toString(16);
  const bits = 4 * digits.length - Math.clz32(parseInt(digits[0], 16)) + 28;
  return Math.floor(bits / 8) + 1;
}

function writeFloat(n) {
  need(9);
  out[end++] = 0xcb;
  outView.setFloat64(end, n);
  if (n !== n) outView.setUint32(end, 0x7ff80000); // of all NaN one form is kept
  if (n !== n) outView.setUint32(end + 4, 0);
  end += 8;
}

function writeTime(time) {
  need(15);
  const { seconds } = time;
  const nanos = time.micros * 1000;
  if (seconds < 0 || seconds >= 4 * TWO_32) {
    out[end++] = 0xc7;
    out[end++] = 12;
    out[end++] = 0xff;
    outView.setUint32(end, nanos);
    outView.setBigInt64(end + 4, BigInt(seconds));
    end += 12;
  } else if (nanos || seconds >= TWO_32) {
    out[end++] = 0xd7;
    out[end++] = 0xff;
    outView.setUint32(end, nanos * 4 + Math.floor(seconds / TWO_32));
    outView.setUint32(end + 4, seconds % TWO_32);
    end += 8;
  } else {
    out[end++] = 0xd6;
    out[end++] = 0xff;
    outView.setUint32(end, seconds);
    end += 4;
  }
}

/** Leaves room for the head that most extensions have, and returns where that is. */
function beginExtension() {
  need(6);
  end += 3;
  return end - 3;
}

/** Writes the head now that the size of the payload is known, and moves the payload where it is another one. */
function endExtension(start, code) {
  const size = end - start - 3;
  need(3);
  const fixed = size <= 16 ? FIXED[size] : 0;
  if (fixed) {
    out[start] = fixed;
    out[start + 1] = code;
    out.copyWithin(start + 2, start + 3, end);
    end -= 1;
  } else if (size < 0x100) {
    out[start] = 0xc7;
    out[start + 1] = size;
    out[start + 2] = code;
  } else {
    const head = size < 0x10000 ? 4 : 6;
    out.copyWithin(start + head, start + 3, end);
    if (head === 4) outView.setUint16(start + 1, size);
    else outView.setUint32(start + 1, size);
    out[start] = head === 4 ? 0xc8 : 0xc9;
    out[start + head - 1] = code;
    end += head - 3;
  }
}

const FIXED = [0, 0xd4, 0xd5, 0, 0xd6, 0, 0, 0, 0xd7, 0, 0, 0, 0, 0, 0, 0, 0xd8];

// -- msgpack: reading ---------------------------------------------------------------------------------------------

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }); // a BOM is a character of a text

let input;
let inputView;
let at;
let limit;

/** Returns the value that some bytes mean; throws `ProtocolError("malformed")` for what is none. */
export function unpack(bytes, depth = DEPTH) {
  input = bytes;
  inputView = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  at = 0;
  limit = bytes.length;
  try {
    const value = read(depth);
    if (at !== limit) throw malformed(`${limit - at} bytes after the value`);
    return value;
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    throw malformed(error.message);
  } finally {
    input = inputView = undefined;
  }
}

const malformed = (said) => new ProtocolError("malformed", said);

/** Moves on by so many bytes, and returns where it was. */
function skip(count) {
  const before = at;
  if (count > limit - at) throw malformed("the bytes end in the middle of a value");
  at += count;
  return before;
}

function read(depth) {
  const byte = input[skip(1)];
  if (byte < 0x80) return byte;
  if (byte >= 0xe0) return byte - 0x100;
  if (byte >= 0xa0 && byte < 0xc0) return readText(byte & 0x1f);
  if (byte < 0x90) return readMap(byte & 0x0f, depth);
  if (byte < 0xa0) return readArray(byte & 0x0f, depth);
  switch (byte) {
    case 0xc0:
      return null;
    case 0xc2:
      return false;
    case 0xc3:
      return true;
    case 0xc4:
      return readBytes(input[skip(1)]);
    case 0xc5:
      return readBytes(inputView.getUint16(skip(2)));
    case 0xc6:
      return readBytes(inputView.getUint32(skip(4)));
    case 0xc7:
      return readExtension(input[skip(1)], depth);
    case 0xc8:
      return readExtension(inputView.getUint16(skip(2)), depth);
    case 0xc9:
      return readExtension(inputView.getUint32(skip(4)), depth);
    case 0xca:
      return float(inputView.getFloat32(skip(4)));
    case 0xcb:
      return float(inputView.getFloat64(skip(8)));
    case 0xcc:
      return input[skip(1)];
    case 0xcd:
      return inputView.getUint16(skip(2));
    case 0xce:
      return inputView.getUint32(skip(4));
    case 0xcf:
      return wide(inputView.getUint32(skip(4)), false);
    case 0xd0:
      return inputView.getInt8(skip(1));
    case 0xd1:
      return inputView.getInt16(skip(2));
    case 0xd2:
      return inputView.getInt32(skip(4));
    case 0xd3:
      return wide(inputView.getInt32(skip(4)), true);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return readExtension(1 << (byte - 0xd4), depth);
    case 0xd9:
      return readText(input[skip(1)]);
    case 0xda:
      return readText(inputView.getUint16(skip(2)));
    case 0xdb:
      return readText(inputView.getUint32(skip(4)));
    case 0xdc:
      return readArray(inputView.getUint16(skip(2)), depth);
    case 0xdd:
      return readArray(inputView.getUint32(skip(4)), depth);
    case 0xde:
      return readMap(inputView.getUint16(skip(2)), depth);
    case 0xdf:
      return readMap(inputView.getUint32(skip(4)), depth);
    default:
      throw malformed("no value begins with the byte 0xc1");
  }
}

const float = (n) => (Number.isInteger(n) ? new Float(n) : n);

function wide(high, signed) {
  const low = inputView.getUint32(skip(4));
  const n = high * TWO_32 + low;
  if (Number.isSafeInteger(n)) return n;
  return signed ? inputView.getBigInt64(at - 8) : inputView.getBigUint64(at - 8);
}

function readText(length) {
  const start = skip(length);
  if (length < 24) {
    let made = "";
    for (let each = start; each < at; each++) {
      const code = input[each];
      if (code > 0x7f) return decoder.decode(input.subarray(start, at));
      made += String.fromCharCode(code);
    }
    return made;
  }
  return decoder.decode(input.subarray(start, at));
}

function readBytes(length) {
  const start = skip(length);
  return input.slice(start, at);
}

/** Refuses what announces more parts than there are bytes, before anything is made. */
function inside(count, depth) {
  if (depth <= 0) throw new ProtocolError("limit", `nested deeper than ${DEPTH} levels`);
  if (count > limit - at) throw malformed("the bytes end in the middle of a value");
  return depth - 1;
}

function readArray(count, depth) {
  const below = inside(count, depth);
  const made = new Array(count);
  for (let each = 0; each < count; each++) made[each] = read(below);
  return made;
}

function readMap(count, depth) {
  const below = inside(2 * count, depth);
  const made = {};
  for (let each = 0; each < count; each++) {
    const name = read(below);
    if (typeof name !== "string") throw malformed("a map with keys that are no text is extension 3");
    put(made, name, read(below));
  }
  return made;
}

function readExtension(size, depth) {
  const code = inputView.getInt8(skip(1));
  const start = skip(size);
  if (code === -1) return readTime(start, size);
  if (code === BIG_INTEGER) return readBigInt(start, size);
  if (code !== RECORD && code !== MAP) throw malformed(`extension ${code}, known are 1 to 3 and timestamps`);
  const [next, before] = [at, limit];
  at = start;
  limit = next;
  const head = input[start];
  if (!((head >= 0x90 && head < 0xa0) || head === 0xdc || head === 0xdd) || size === 0) {
    throw malformed("the payload of a record or a map is an array");
  }
  const parts = read(depth);
  if (at !== limit) throw malformed("bytes after the parts of a record or a map");
  limit = before;
  return code === RECORD ? recordOf(parts) : pairsOf(parts);
}

function recordOf(parts) {
  if (!parts.length) throw malformed("a record is an array that begins with its label");
  const made = new Record(parts.shift());
  made.fields = parts;
  return made;
}

function pairsOf(halves) {
  if (halves.length % 2) throw malformed("a map is an array of keys and values in turn");
  const pairs = [];
  for (let each = 0; each < halves.length; each += 2) pairs.push([halves[each], halves[each + 1]]);
  return mapOf(pairs);
}

function readBigInt(start, size) {
  let digits = "0x";
  for (let each = start; each < start + size; each++) digits += input[each].toString(16).padStart(2, "0");
  const n = size ? BigInt.asIntN(8 * size, BigInt(digits)) : 0n;
  // -2^(8k-1) may have one byte more than it needs
  const shortest = size === bigSize(n) || (n < 0n && size === bigSize(-n));
  if (!shortest || (n >= -(1n << 63n) && n < 1n << 64n)) {
    throw malformed("a big integer is written in as few bytes as it needs, past 64 bits");
  }
  return n;
}

function readTime(start, size) {
  let nanos = 0;
  let seconds;
  if (size === 4) {
    seconds = inputView.getUint32(start);
  } else if (size === 8) {
    const high = inputView.getUint32(start);
    nanos = Math.floor(high / 4);
    seconds = (high % 4) * TWO_32 + inputView.getUint32(start + 4);
  } else if (size === 12) {
    nanos = inputView.getUint32(start);
    seconds = Number(inputView.getBigInt64(start + 4));
  } else {
    throw malformed(`a timestamp of ${size} bytes`);
  }
  if (nanos > 999_999_999) throw malformed(`a timestamp with ${nanos} nanoseconds`);
  return new Time(seconds, Math.floor(nanos / 1000));
}

// -- JSON ---------------------------------------------------------------------------------------------------------

/** Returns what `JSON.stringify` makes the JSON form of a value from (TEXT.md), a float `1.0` as `{"@float": "1.0"}`. */
export function toJson(value) {
  switch (rank(value)) {
    case 2:
    case 3:
      return numberJson(value);
    case 5:
      return { "@bytes": btoa(Array.from(value, (byte) => String.fromCharCode(byte)).join("")) };
    case 6:
      return { "@time": asTime(value).toString() };
    case 7:
      return value.map(toJson);
    case 8:
      return { "@": toJson(value.label), fields: value.fields.map(toJson) };
    case 9: {
      const pairs = entries(value).map(([at, part]) => [toJson(at), toJson(part)]);
      const plain = pairs.every(([at]) => typeof at === "string" && !at.startsWith("@"));
      return plain ? mapOf(pairs) : { "@map": pairs };
    }
    default:
      return value;
  }
}

function numberJson(value) {
  if (typeof value === "bigint") {
    return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER
      ? Number(value)
      : { "@int": integerText(value) };
  }
  const n = value instanceof Float ? value.value : value;
  const plain = isFloat(value) ? Number.isFinite(n) && !Number.isInteger(n) : true;
  return plain ? n : { "@float": floatText(n) };
}

const TAGS = {
  "@int": (said) => small(integerOf(said)),
  "@float": (said) => float(floatOf(said)),
  "@bytes": (said) => Uint8Array.from(atob(said), (character) => character.charCodeAt(0)),
  "@time": (said) => Time.parse(said),
};

/** Returns the value that was said in JSON, as `JSON.parse` gives it; throws `UsageError` for what is no value's. */
export function fromJson(said) {
  if (said === null || typeof said === "boolean" || typeof said === "string") return said;
  if (typeof said === "number") return said;
  if (Array.isArray(said)) return said.map(fromJson);
  const tags = Object.keys(said).filter((name) => name.startsWith("@"));
  if (!tags.length) return mapOf(Object.entries(said).map(([name, part]) => [name, fromJson(part)]));
  const names = Object.keys(said);
  const [tag] = tags;
  if (tag === "@" && names.length === 2 && Array.isArray(said.fields)) {
    return new Record(fromJson(said["@"]), ...said.fields.map(fromJson));
  }
  if (tag === "@map" && names.length === 1 && Array.isArray(said[tag]) && said[tag].every(isPair)) {
    return mapOf(said[tag].map(([name, part]) => [fromJson(name), fromJson(part)]));
  }
  if (names.length === 1 && Object.hasOwn(TAGS, tag) && typeof said[tag] === "string") return TAGS[tag](said[tag]);
  throw new UsageError(`an object with keys ${names.join(", ")} is none of the tagged forms`);
}

const isPair = (pair) => Array.isArray(pair) && pair.length === 2;

const small = (n) => (n >= Number.MIN_SAFE_INTEGER && n <= Number.MAX_SAFE_INTEGER ? Number(n) : n);

function integerOf(said) {
  if (!/^-?(?:0x[0-9a-fA-F]+|0|[1-9][0-9]*)$/.test(said)) throw new UsageError(`${said} is no integer`);
  return said.startsWith("-") ? -BigInt(said.slice(1)) : BigInt(said);
}

function floatOf(said) {
  const known = { nan: NaN, inf: Infinity, "-inf": -Infinity }[said];
  if (known !== undefined) return known;
  if (!/^-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$/.test(said)) throw new UsageError(`${said} is no float`);
  return Number(said);
}

// -- text: writing ------------------------------------------------------------------------------------------------

const WORD = /^[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*$/;
const KEYWORDS = { true: true, false: false, null: null, nan: NaN, inf: Infinity };
const CLASSES = ["bool", "int", "float", "str", "bytes", "time", "null", "record", "seq", "map"];

/** Returns the text of a value or a pattern, in one line, as TEXT.md has it: `present("Alice")`. */
export function text(value) {
  switch (rank(value)) {
    case 2:
    case 3:
      return numberText(value);
    case 4:
      return stringText(value);
    case 5:
      return `b"${Array.from(value, byteText).join("")}"`;
    case 6:
      return `@${asTime(value)}`;
    case 7:
      return `[${value.map(text).join(", ")}]`;
    case 8:
      return recordText(value);
    case 9:
      return `{${entries(value)
        .map(([at, part]) => `${text(at)}: ${text(part)}`)
        .join(", ")}}`;
    default:
      return String(value);
  }
}

function numberText(value) {
  if (isFloat(value)) return floatText(value instanceof Float ? value.value : value);
  return typeof value === "bigint" ? integerText(value) : String(value);
}

const integerText = (n) => {
  const digits = (n < 0n ? -n : n).toString(16);
  return 4 * digits.length - Math.clz32(parseInt(digits[0], 16)) + 28 <= 2048
    ? n.toString()
    : `${n < 0n ? "-" : ""}0x${digits}`;
};

/** Returns the shortest text that is this float, with a point or an exponent: where each begins is as in Python. */
function floatText(n) {
  if (Number.isNaN(n)) return "nan";
  if (!Number.isFinite(n)) return n > 0 ? "inf" : "-inf";
  const [digits, power] = n.toExponential().split("e");
  if (Number(power) < -4 || Number(power) >= 16) {
    return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  }
  if (Object.is(n, -0)) return "-0.0";
  const plain = Math.abs(n) < 1e-6 && n ? n.toFixed(20).replace(/0+$/, "") : String(n);
  return plain.includes(".") ? plain : `${plain}.0`;
}

const SHORT = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const SPECIAL = /["\\]|(?! )[\p{C}\p{Z}]/gu;

const stringText = (said) =>
  `"${said.replace(SPECIAL, (each) => SHORT[each] ?? [...each].map(escaped).join(""))}"`;

const escaped = (character) =>
  Array.from({ length: character.length }, (_, at) => `\\u${hex(character.charCodeAt(at), 4)}`).join("");

const hex = (n, digits) => n.toString(16).padStart(digits, "0");

function byteText(byte) {
  const character = String.fromCharCode(byte);
  if (character !== "\b" && character !== "\f" && SHORT[character]) return SHORT[character];
  return byte >= 0x20 && byte < 0x7f ? character : `\\x${hex(byte, 2)}`;
}

function recordText({ label, fields }) {
  const short = label === "_" ? discardText(fields) : label === "$" ? captureText(fields) : null;
  return short ?? `${labelText(label)}(${fields.map(text).join(", ")})`;
}

function labelText(label) {
  if (typeof label !== "string") return `<${text(label)}>`;
  return WORD.test(label) && !Object.hasOwn(KEYWORDS, label) && label !== "_" ? label : stringText(label);
}

function discardText(fields) {
  if (!fields.length) return "_";
  return fields.length === 1 && CLASSES.includes(fields[0]) ? `_:${fields[0]}` : null;
}

function captureText(fields) {
  if (fields.length !== 3) return null;
  const [name, ofClass, sub] = fields;
  if (name !== null && !(typeof name === "string" && WORD.test(name))) return null;
  if (ofClass !== null && !CLASSES.includes(ofClass)) return null;
  const plain = sub instanceof Record && sub.label === "_" && !sub.fields.length;
  return `$${name ?? ""}${ofClass ? `:${ofClass}` : ""}${plain ? "" : `(${text(sub)})`}`;
}

// -- text: reading ------------------------------------------------------------------------------------------------

/** Returns the value or pattern of a text (TEXT.md); throws `UsageError`, which shows the place, for any other text. */
export function parse(said) {
  const reader = new Reader(said);
  const value = reader.value(DEPTH);
  reader.blanks();
  if (reader.at < said.length) throw reader.error(`expected the end, found ${reader.found()}`);
  return value;
}

class Reader {
  constructor(said) {
    this.said = said;
    this.at = 0;
  }

  error(what, at = this.at) {
    const line = this.said.slice(0, at).split("\n");
    return new UsageError(`${what} (line ${line.length}, column ${line.at(-1).length + 1} of ${JSON.stringify(this.said)})`);
  }

  found() {
    return this.at < this.said.length ? JSON.stringify(this.said[this.at]) : "the end";
  }

  /** Takes what a sticky expression finds here; empty where that is nothing. */
  match(form) {
    form.lastIndex = this.at;
    const found = form.exec(this.said)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  blanks() {
    this.match(/(?:[ \t\r\n]|#[^\n]*)*/y);
  }

  ahead(character) {
    return this.said[this.at] === character;
  }

  /** Takes a character, after blanks, if it is there. */
  take(character) {
    this.blanks();
    const there = this.ahead(character);
    this.at += Number(there);
    return there;
  }

  expect(...characters) {
    const found = characters.find((each) => this.take(each));
    if (!found) throw this.error(`expected ${characters.join(" or ")}, found ${this.found()}`);
    return found;
  }

  inside(depth) {
    if (depth <= 0) throw this.error(`nested deeper than ${DEPTH} levels`);
    return depth - 1;
  }

  value(depth) {
    this.blanks();
    const first = this.said[this.at] ?? "";
    if (/[-0-9]/.test(first)) return this.number();
    if (this.said.startsWith('b"', this.at)) return this.bytes();
    if (/[A-Za-z_]/.test(first)) return this.word(depth);
    switch (first) {
      case '"': {
        const said = this.string();
        return this.ahead("(") ? this.record(said, depth) : said;
      }
      case "@":
        return this.time();
      case "[":
        this.at++;
        return this.items("]", this.inside(depth));
      case "{":
        this.at++;
        return this.map(this.inside(depth));
      case "<":
        return this.labelled(depth);
      case "$":
        this.at++;
        return this.capture(this.inside(depth));
      default:
        throw this.error(`expected a value, found ${this.found()}`);
    }
  }

  number() {
    const start = this.at;
    const said = this.match(
      /-?(?:0x[0-9a-fA-F]+|(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|inf)(?![A-Za-z0-9_]|\.[0-9])/y,
    );
    if (!said) throw this.error("no number", start);
    if (/^-?(?:0x[0-9a-fA-F]+|[0-9]+)$/.test(said)) {
      if (!said.includes("x") && said.replace("-", "").length > 640) {
        throw this.error("an integer of more than 640 digits is written in base 16, 0x…", start);
      }
      return small(integerOf(said));
    }
    const n = floatOf(said);
    if (!Number.isFinite(n) && !said.endsWith("inf")) throw this.error("a number beyond the range of a float", start);
    return float(n);
  }

  /** Takes the body of what is in quotes. */
  quoted() {
    const start = this.at;
    const found = this.match(/"(?:[^"\\\u0000-\u001f]|\\[^\u0000-\u001f])*"/y);
    if (!found) throw this.error('a string that is not closed by ", or has a control character', start);
    return found.slice(1, -1);
  }

  string() {
    const start = this.at;
    const said = this.quoted().replace(/\\(?:u([0-9a-fA-F]{4})|(.))/gsu, (whole, code, letter) => {
      if (code !== undefined) return String.fromCharCode(parseInt(code, 16));
      const plain = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" }[letter];
      if (plain === undefined) throw this.error(`unknown escape ${whole}`, start);
      return plain;
    });
    if (LONE.test(said)) throw this.error("half a surrogate pair is no character", start);
    return said;
  }

  bytes() {
    const start = this.at++;
    const made = this.quoted().replace(/\\(?:x([0-9a-fA-F]{2})|(.))|[^\u0000-\u007f]/gsu, (whole, code, letter) => {
      if (code !== undefined) return String.fromCharCode(parseInt(code, 16));
      const plain = { '"': '"', "\\": "\\", n: "\n", r: "\r", t: "\t" }[letter];
      if (plain === undefined) throw this.error(`${whole} in bytes, which are ASCII and escapes such as \\xff`, start);
      return plain;
    });
    return Uint8Array.from(made, (character) => character.charCodeAt(0));
  }

  time() {
    const start = this.at++;
    const said = this.match(/[-+:.A-Za-z0-9]*/y);
    try {
      return Time.parse(said);
    } catch (error) {
      throw this.error(error.message, start);
    }
  }

  word(depth) {
    const start = this.at;
    const word = this.match(/[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*/y);
    if (word === "_") return this.discard(depth, start);
    const known = Object.hasOwn(KEYWORDS, word);
    if (this.ahead("(")) {
      if (known) throw this.error(`${word} is no label: write "${word}"(…) for the text`, start);
      return this.record(word, depth);
    }
    if (!known) throw this.error(`a bare word is no value: text is written "${word}", a record ${word}(…)`, start);
    return KEYWORDS[word];
  }

  record(label, depth) {
    const below = this.inside(depth);
    this.at++;
    return new Record(label, ...this.items(")", below));
  }

  labelled(depth) {
    this.at++;
    const label = this.value(this.inside(depth));
    this.expect(">");
    if (!this.ahead("(")) throw this.error(`expected ( right behind the label, found ${this.found()}`);
    return this.record(label, depth);
  }

  items(close, depth) {
    const items = [];
    while (!this.take(close)) {
      items.push(this.value(depth));
      if (this.expect(",", close) === close) break;
    }
    return items;
  }

  map(depth) {
    const pairs = [];
    while (!this.take("}")) {
      const name = this.value(depth);
      this.expect(":");
      pairs.push([name, this.value(depth)]);
      if (this.expect(",", "}") === "}") break;
    }
    return mapOf(pairs);
  }

  discard(depth, start) {
    this.inside(depth);
    const ofClass = this.class();
    if (this.ahead("(")) throw this.error('a discard has no fields; a record labelled "_" is written "_"(…)', start);
    return ofClass ? new Record("_", ofClass) : new Record("_");
  }

  capture(depth) {
    const name = this.match(/[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*/y) || null;
    const ofClass = this.class();
    let sub = new Record("_");
    if (this.ahead("(")) {
      this.at++;
      sub = this.value(depth);
      this.expect(")");
    } else {
      this.inside(depth);
    }
    return new Record("$", name, ofClass, sub);
  }

  /** Takes the class that follows with its colon, if any; after a colon of a map there is a blank. */
  class() {
    const start = this.at;
    if (!this.ahead(":")) return null;
    this.at++;
    const word = this.match(/[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*/y);
    if (!word) {
      this.at = start;
      return null;
    }
    if (!CLASSES.includes(word)) throw this.error(`${word} is no class, which are ${CLASSES.join(", ")}`, start + 1);
    return word;
  }
}

// -- packets ------------------------------------------------------------------------------------------------------

const HELLO = 1;
const TURN = 2;
const OPEN = 3;
const ASK = 4;
const ABORT = 5;
const REQUEST = 6;
const PING = 7;
const PONG = 8;
const BYE = 9;
const WELCOME = 33;
const ACCEPTED = 34;
const REFUSAL = 35;
const VALUES = 36;
const DONE = 37;
const ERROR = 38;
const ANSWER = 39;
const DENIED = 40;
const REACHED = 42;

const ASSERT = 0;
const RETRACT = 1;
const SEND = 2;
const REPLACE = 3;

const MORE = 1;
const STATE = 2;
const CONFLATED = 4;
const PROGRESS = 8;

const PACKET_DEPTH = 56;
const SPARE = 4096 * 4 + 256;
const IN_FLIGHT = 4096;

/** A promise with the functions that settle it; a rejection that nothing awaits is no error of the program. */
class Deferred {
  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }
}

/** Returns an error of the same kind for another place where it is thrown. */
const again = (error) =>
  error instanceof UsageError ? new error.constructor(error.text) : new error.constructor(error.code, error.text);

// -- turns --------------------------------------------------------------------------------------------------------

/** A claim on a fact: `retract` ends it, `replace` puts another fact in its place, in one turn. */
export class Claim {
  #space;

  constructor(space, handle, value) {
    this.#space = space;
    this.handle = handle;
    this.value = value;
  }

  /** Ends the claim, and returns the epoch in which it ended. */
  retract() {
    return this.#space.turn((draft) => draft.retract(this));
  }

  /** Asserts a fact and ends the claim on the previous one in one turn; the claim is on the new one then. */
  async replace(value) {
    const before = [this.handle, this.value];
    const turn = this.#space.turn((draft) => draft.replace(this, value));
    const { handle } = this;
    try {
      return await turn;
    } catch (error) {
      if (error instanceof Refused && this.handle === handle) [this.handle, this.value] = before;
      throw error;
    }
  }
}

/** Collects the actions of one turn: `space.turn((draft) => …)` passes it. */
export class Draft {
  #space;
  #take;

  constructor(space, take) {
    this.#space = space;
    this.#take = take;
    this.actions = [];
  }

  /** Asserts a fact and returns its claim. */
  assert(value) {
    const handle = this.#take();
    this.actions.push([ASSERT, handle, factOf(value)]);
    return new Claim(this.#space, handle, value);
  }

  /** Ends a claim. */
  retract(claim) {
    this.actions.push([RETRACT, claim.handle]);
  }

  /** Asserts a fact and ends the claim on the previous one; the claim is on the new fact then. */
  replace(claim, value) {
    const handle = this.#take();
    this.actions.push([REPLACE, claim.handle, handle, factOf(value)]);
    claim.handle = handle;
    claim.value = value;
    return claim;
  }

  /** Sends a message. */
  send(value) {
    this.actions.push([SEND, factOf(value)]);
  }
}

/** Refuses text that reads as a record: `"present(1)"` is text, and almost never what was meant. */
function factOf(value) {
  if (typeof value === "string" && value.endsWith(")")) {
    let meant = null;
    try {
      meant = parse(value);
    } catch {
      return value;
    }
    if (meant instanceof Record) {
      throw new UsageError(`${JSON.stringify(value)} is text; assert parse(${JSON.stringify(value)}) for the record`);
    }
  }
  return value;
}

/** A submitted turn; `restating` ones assert the claims of the session again, and nothing waits for them. */
class Ticket extends Deferred {
  constructor(sequence, owner, actions, restating = false) {
    super();
    this.sequence = sequence;
    this.owner = owner;
    this.actions = actions;
    this.restating = restating;
    this.promise.catch(() => {}); // the caller of `turn` gets it; of others the application hears by its events
  }
}

/** Applies what a turn does to the claims of the session, a map from handles to facts. */
function applyTo(claims, ticket) {
  if (ticket.owner !== "" || ticket.restating) return;
  for (const [verb, handle, next, value] of ticket.actions) {
    if (verb === ASSERT) {
      claims.set(handle, next);
    } else if (verb === RETRACT) {
      claims.delete(handle);
    } else if (verb === REPLACE) {
      claims.delete(handle);
      claims.set(next, value);
    }
  }
}

/**
 * The turns that are submitted and not answered, and what is sent again after a connection ended.
 *
 * Turns up to `Welcome.sequence` are sent again as they are, for their epochs. The others are held until it is known
 * whether the session goes on; if it does not, its claims are asserted again first, in turns of their own.
 */
class InFlight {
  constructor(space, send) {
    this.space = space;
    this.send = send;
    this.limits = {};
    this.sequence = 0;
    this.applied = 0;
    this.claims = new Map();
    this.sent = new Map(); // by ascending numbers
    this.answered = new Map(); // before older ones
    this.held = [];
  }

  get size() {
    return this.sent.size + (this.held?.length ?? 0);
  }

  tickets() {
    return [...this.sent.values(), ...(this.held ?? [])];
  }

  submit(owner, actions) {
    const ticket = new Ticket(this.sequence + 1, owner, actions);
    const bytes = this.#packed(ticket);
    this.#check(bytes.length, elements);
    this.sequence++;
    if (this.held) {
      this.held.push(ticket);
    } else {
      this.sent.set(ticket.sequence, ticket);
      this.send(bytes);
    }
    return ticket;
  }

  /** Refuses what the daemon would end the session for. */
  #check(bytes, parts) {
    for (const [what, got, most] of [
      ["bytes", bytes, this.limits.frame_bytes],
      ["elements", parts, this.limits.frame_elements],
    ]) {
      if (got > most) throw new Refused("limit", `a turn of ${got} ${what}, the daemon takes ${most}`);
    }
  }

  accept(sequence, epoch) {
    const ticket = this.sent.get(sequence);
    if (!ticket) return;
    this.sent.delete(sequence);
    this.applied = Math.max(this.applied, sequence);
    this.answered.set(sequence, ticket);
    this.#count();
    ticket.resolve(epoch);
  }

  refuse(sequence, refusal) {
    const ticket = this.sent.get(sequence);
    if (!ticket) return undefined;
    this.sent.delete(sequence);
    this.#count();
    ticket.reject(refusal);
    return ticket;
  }

  /** Applies answered turns to the claims, in order: answers may overtake one another. */
  #count() {
    if (!this.answered.size) return;
    const oldest = this.sent.keys().next().value ?? Infinity;
    for (const sequence of [...this.answered.keys()].sort((a, b) => a - b)) {
      if (sequence > oldest) break;
      applyTo(this.claims, this.answered.get(sequence));
      this.answered.delete(sequence);
    }
  }

  fail(errorOf) {
    for (const ticket of this.tickets()) ticket.reject(errorOf(ticket));
    this.sent.clear();
    this.held = [];
  }

  /** Fails all turns, which were meant for another space; returns how many of them an application waits for. */
  abandon(errorOf) {
    const tickets = this.tickets();
    this.sent.clear();
    this.#count();
    this.held = [];
    for (const ticket of tickets) ticket.reject(errorOf(ticket));
    return tickets.filter((ticket) => !ticket.restating).length;
  }

  /** Begins a connection to a daemon that has applied turns up to a number; nothing else is sent until `release`. */
  hold(applied) {
    const beyond = [...this.sent.values()].filter((ticket) => ticket.sequence > applied);
    this.held = [...beyond, ...(this.held ?? [])];
    for (const ticket of beyond) this.sent.delete(ticket.sequence);
    for (const ticket of this.sent.values()) this.send(this.#packed(ticket));
    this.applied = applied;
    this.sequence = Math.max(this.sequence, applied);
  }

  /** Sends what was held, after the claims if those have ended; returns how many facts are asserted again. */
  release(restate) {
    const claims = new Map(this.claims);
    const known = [...this.answered, ...this.sent].sort((a, b) => a[0] - b[0]);
    if (restate) for (const [, ticket] of known) applyTo(claims, ticket);
    let held = this.held.sort((a, b) => a.sequence - b.sequence);
    this.held = null;
    let last = Math.max(this.applied, 0, ...this.sent.keys());
    if (restate) held = [...this.#restating(claims), ...held.filter((ticket) => !ticket.restating)];
    for (const ticket of held) {
      last = ticket.sequence = Math.max(last + 1, ticket.sequence);
      this.sent.set(last, ticket);
      this.send(this.#packed(ticket));
    }
    this.sequence = Math.max(this.sequence, last);
    return restate ? claims.size : 0;
  }

  /** Yields the turns that assert all claims again, each within the limits of the daemon. */
  *#restating(claims) {
    const room = Math.max(1, Math.min(this.limits.frame_bytes, this.limits.frame_elements) - SPARE);
    let part = [];
    let used = 0;
    for (const [handle, value] of claims) {
      const action = [ASSERT, handle, value];
      const cost = Math.max(pack(action).length, elements);
      if (part.length && (part.length >= this.limits.actions_per_turn || used + cost > room)) {
        yield new Ticket(0, "", part, true);
        [part, used] = [[], 0];
      }
      part.push(action);
      used += cost;
    }
    if (part.length) yield new Ticket(0, "", part, true);
  }

  #packed({ sequence, owner, actions }) {
    return pack([TURN, sequence, this.space, owner, actions], PACKET_DEPTH);
  }
}

// -- observations -------------------------------------------------------------------------------------------------

/** The changes of one epoch, as one pattern saw them: rows of captures. */
export class Epoch {
  constructor(number, micros, flags, added, messages, removed, first, lost = 0) {
    this.number = number;
    this.micros = micros;
    this.flags = flags;
    this.added = added;
    this.messages = messages;
    this.removed = removed;
    this.first = first;
    this.lost = lost;
  }

  /** When it was committed, to the millisecond; `micros` has microseconds since 1970 UTC. */
  get time() {
    return new Date(Math.floor(this.micros / 1000));
  }

  /** True if `added` is the state, and not what has changed. */
  get state() {
    return (this.flags & STATE) !== 0;
  }

  /** True if this is the net difference over the epochs from `first` to `number`. */
  get conflated() {
    return (this.flags & CONFLATED) !== 0;
  }

  /** True if nothing has changed, and all changes up to `number` have come. */
  get progress() {
    return (this.flags & PROGRESS) !== 0;
  }
}

/** Returns the epoch of one value of a stream, which may be a part of one, or a mark. */
function epochOf(value) {
  if (value instanceof Record && value.label === "lost" && value.fields.length === 3) {
    const [changes, first, last] = value.fields;
    return new Epoch(last, 0, 0, [], [], [], first, changes);
  }
  if (!Array.isArray(value) || value.length < 7 || !Array.isArray(value[3])) {
    throw new ProtocolError("malformed", "a value of an observation that is no epoch");
  }
  return new Epoch(...value.slice(0, 7));
}

/** Appends without spreading: an epoch may have more rows than a function takes arguments. */
function append(list, more) {
  for (const each of more) list.push(each);
}

const BUDGET = 64 << 20;
const WINDOW = 1 << 20;
const LEAST = 4 << 10;
const ITEM = 64;

const RESTARTS = new Set(["epoch-gone", "epoch-lost", "epoch-ahead"]);

const OPTIONS = {
  snapshot: true,
  after: null,
  asOf: null,
  upto: null,
  durable: false,
  quiet: false,
  net: false,
  policy: "conflate",
  progress: false,
  window: null,
};

/**
 * The whole epochs of one pattern: `for await (const epoch of observation)`. Leaving the loop ends it.
 *
 * By default the first epoch is the state. After a lost connection it goes on after the last epoch that came.
 */
export class Observation {
  #session;
  #options;
  #number = null;
  #queue = [];
  #readers = [];
  #costs = [];
  #part = null;
  #partItems = 0;
  #partBytes = 0;
  #known = new Map();
  #newest;
  #reached = null;
  #since = 0;
  #restated = false;
  #catchingUp = false;
  #over = false;
  #error = null;
  #came = 0;
  #cameBytes = 0;
  #taken = 0;
  #takenBytes = 0;
  #asked = 0;
  #askedBytes = 0;

  constructor(session, pattern, options) {
    for (const name of Object.keys(options)) {
      if (!Object.hasOwn(OPTIONS, name)) {
        throw new UsageError(`no option ${name}, there are ${Object.keys(OPTIONS).join(", ")}`);
      }
    }
    this.pattern = typeof pattern === "string" ? parse(pattern) : pattern;
    /** The names of the captures, in the order of the rows. */
    this.names = captureNames(this.pattern);
    this.#session = session;
    this.#options = { ...OPTIONS, ...options };
    this.#newest = this.#options.after;
    this.#open(null, false);
  }

  // -- the application's side --

  /** Returns the next whole epoch, or `undefined` when the observation is complete. */
  async read() {
    const { value } = await this.next();
    return value;
  }

  next() {
    if (this.#queue.length) return Promise.resolve({ value: this.#pop(), done: false });
    if (this.#over) return this.#last();
    const reader = new Deferred();
    this.#readers.push(reader);
    return reader.promise;
  }

  /** Ends the observation without waiting. */
  close() {
    this.#finish();
    this.#queue.length = this.#costs.length = 0;
  }

  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** How many epochs and bytes have come and are not read yet; the credit bounds them. */
  get waiting() {
    return { epochs: this.#queue.length, bytes: this.#cameBytes - this.#takenBytes };
  }

  #pop() {
    const [items, bytes] = this.#costs.shift();
    this.#taken += items;
    this.#takenBytes += bytes;
    this.#want();
    return this.#queue.shift();
  }

  #last() {
    const error = this.#error;
    this.#error = null;
    return error ? Promise.reject(again(error)) : Promise.resolve({ value: undefined, done: true });
  }

  #serve() {
    while (this.#readers.length && this.#queue.length) {
      this.#readers.shift().resolve({ value: this.#pop(), done: false });
    }
    while (this.#over && this.#readers.length) this.#last().then(...settlers(this.#readers.shift()));
  }

  #finish(error = null) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#session.dropStream(this.#number, this);
    this.#known.clear();
    this.#serve();
  }

  // -- credit --

  get #limits() {
    const bytes = Math.max(LEAST, Math.min(WINDOW, Math.floor(BUDGET / Math.max(1, this.#session.streams.size))));
    return [this.#options.window ?? Math.max(1, Math.floor(bytes / ITEM)), bytes];
  }

  /** Requests a whole window beyond what is read, when half of it is used up. */
  #want() {
    const [items, bytes] = this.#limits;
    const taken = this.#taken + this.#partItems; // parts of an epoch cannot be read before the last has come
    const takenBytes = this.#takenBytes + this.#partBytes;
    const due = this.#asked - taken <= items / 2 || this.#askedBytes - takenBytes <= bytes / 2;
    if (!due || this.#over) return;
    this.#asked = Math.max(this.#asked, taken + items);
    this.#askedBytes = Math.max(this.#askedBytes, takenBytes + bytes);
    this.#session.send([ASK, this.#number, this.#asked, this.#askedBytes]);
  }

  // -- the wire's side --

  /** Opens the stream, or opens it again under its number, after the last epoch that came. */
  #open(number, net) {
    const [items, bytes] = this.#limits;
    this.#part = null;
    this.#partItems = this.#partBytes = this.#came = this.#cameBytes = 0;
    this.#taken = this.#takenBytes = 0; // what is held of the connection before counts against the credit
    for (const [heldItems, heldBytes] of this.#costs) {
      this.#taken -= heldItems;
      this.#takenBytes -= heldBytes;
    }
    this.#asked = Math.max(1, this.#taken + items);
    this.#askedBytes = Math.max(1, this.#takenBytes + bytes);
    this.#number = this.#session.openStream(this, this.#spec(net), this.#asked, this.#askedBytes, number);
  }

  #spec(net) {
    const options = this.#options;
    const newest = this.#told;
    const spec = { kind: "observe", pattern: this.pattern };
    if (newest !== null) {
      spec.after = newest;
      if (net || (options.net && newest === options.after)) spec.net = true;
    } else {
      if (!(options.snapshot || this.#restated)) spec.snapshot = false;
      if (options.asOf !== null && !this.#restated) spec.as_of = options.asOf;
    }
    if (options.upto !== null) spec.upto = options.upto;
    for (const name of ["durable", "quiet", "progress"]) if (options[name]) spec[name] = true;
    if (options.policy !== "conflate") spec.policy = options.policy;
    return spec;
  }

  /** The epoch up to which all changes are here; null before the first. */
  get #told() {
    if (this.#newest === null || this.#reached === null) return this.#newest ?? this.#reached;
    return Math.max(this.#newest, this.#reached);
  }

  /** True if it begins with the state, or has begun with it anew, and does not read the past. */
  get #followsState() {
    const { after, asOf, snapshot, upto, durable } = this.#options;
    const past = after !== null || (asOf !== null && !this.#restated);
    return (snapshot || this.#restated) && !past && upto === null && !durable;
  }

  /** Called when the client has reconnected. */
  reopen(number, resumed, moved) {
    if (moved && this.#newest !== this.#options.after) this.#catchUp();
    else if (moved) this.#reached = null;
    this.#open(number, this.#options.policy === "conflate" && this.#followsState && !resumed);
  }

  /** Has the stream opened with the state, of which only the difference to what is known will be shown. */
  #catchUp() {
    this.#since = this.#told ?? 0;
    this.#newest = this.#reached = null;
    this.#catchingUp = this.#restated = true;
  }

  arrive(first, values, bytes) {
    if (first !== this.#came || this.#came + values.length > this.#asked || this.#cameBytes >= this.#askedBytes) {
      throw new ProtocolError("unexpected", `stream ${this.#number}: values from ${first} that were not asked for`);
    }
    this.#came += values.length;
    this.#cameBytes += bytes;
    this.#partBytes += bytes;
    for (const value of values) {
      this.#partItems++;
      this.#assemble(epochOf(value));
    }
    this.#serve();
    if (this.#partItems) this.#want();
  }

  /** Puts the parts of an epoch together: a reader never gets less than all of it. */
  #assemble(epoch) {
    if (this.#part) {
      append(this.#part.added, epoch.added);
      append(this.#part.messages, epoch.messages);
      append(this.#part.removed, epoch.removed);
      this.#part.flags = epoch.flags;
      epoch = this.#part;
    }
    this.#part = epoch.flags & MORE ? epoch : null;
    if (this.#part) return;
    if (this.#catchingUp) epoch = this.#difference(epoch);
    for (const row of epoch.added) this.#known.set(key(row), row);
    for (const row of epoch.removed) this.#known.delete(key(row));
    this.#newest = epoch.number;
    this.#queue.push(epoch);
    this.#costs.push([this.#partItems, this.#partBytes]);
    this.#partItems = this.#partBytes = 0;
  }

  /** Returns the changes that lead from the known state to this one. */
  #difference(state) {
    this.#catchingUp = false;
    const now = new Map(state.added.map((row) => [key(row), row]));
    const came = [...now].filter(([at]) => !this.#known.has(at)).map(([, row]) => row);
    const went = [...this.#known].filter(([at]) => !now.has(at)).map(([, row]) => row);
    const first = Math.min(this.#since + 1, state.number);
    return new Epoch(state.number, state.micros, CONFLATED, came, [], went, first);
  }

  reach(epoch) {
    this.#reached = epoch;
  }

  done() {
    this.#finish();
  }

  fail(error) {
    const newer = this.#newest !== this.#options.after;
    const skips = ["conflate", "drop"].includes(this.#options.policy) && this.#followsState;
    if (error instanceof Refused && RESTARTS.has(error.code) && newer && skips && this.#session.isOpen) {
      this.#catchUp();
      this.#open(null, false);
    } else {
      this.#finish(error);
    }
  }
}

const settlers = (deferred) => [deferred.resolve, deferred.reject];

// -- transports ---------------------------------------------------------------------------------------------------

/**
 * Opens a WebSocket: calls `opened()`, then `message(bytes)` with each packet, then `closed(reason)` once.
 *
 * Another transport is a function like this one; it returns `{send(bytes), close()}`.
 */
export function webSocket(url, { opened, message, closed }) {
  const socket = new WebSocket(addressOf(url), ["dataspace.1.msgpack"]);
  socket.binaryType = "arraybuffer";
  socket.onopen = opened;
  socket.onmessage = ({ data }) => message(new Uint8Array(data));
  socket.onclose = ({ code, reason }) => closed(reason || `the WebSocket was closed with code ${code}`);
  return {
    send: (bytes) => socket.send(bytes),
    close: () => socket.close(),
  };
}

/** Returns the address of the WebSocket: `http` means `ws`, a path may be relative to the page, and `/ws` is usual. */
function addressOf(url) {
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace(/^http/, "ws");
  if (address.pathname === "/") address.pathname = "/ws";
  address.hash = "";
  return address.href;
}

// -- the connection -----------------------------------------------------------------------------------------------

const CONNECT_MILLIS = 10_000;
const LASTING_MILLIS = 1000;
const DRAIN_MILLIS = 10_000;
const PAUSES = [0, 50, 100, 250, 500, 1000, 2000, 4000];
const PATIENT = new Set(["", "timeout", "stalled"]);
const CROWDED = new Set(["limit", "timeout"]);

const randomHex = (bytes) =>
  Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => hex(byte, 2)).join("");

/** What is under way between this client and its daemon, over one connection after another. */
class Session {
  constructor(url, options) {
    this.url = url;
    this.options = options;
    this.client = options.client || (options.owner ? `owner:${options.owner}` : `~${randomHex(16)}`);
    this.home = options.space === "system" ? "main" : options.space;
    this.inFlight = new InFlight(options.space, (bytes) => this.#write(bytes));
    this.streams = new Map();
    this.requests = new Map();
    this.welcome = null;
    this.reconnects = 0;
    this.process = crypto.getRandomValues(new Uint8Array(8));
    this.attempts = 0;
    this.nextStream = 1;
    this.nextRequest = 1;
    this.dropped = [];
    this.ticket = null;
    this.link = null;
    this.up = false;
    this.ended = null;
    this.dismissal = null;
    this.waiters = [];
    this.room = [];
    this.timer = null;
    this.pause = null;
  }

  get isOpen() {
    return this.ended === null;
  }

  checkOpen() {
    if (this.ended) throw again(this.ended);
  }

  /** Calls the application; an error there is the application's, and changes nothing here. */
  #tell(change, more = {}) {
    try {
      this.options.onConnection?.({ change, ...more });
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  // -- life --

  /** Connects for the first time; while the daemon is full, tries for as long as connecting may take. */
  async enter() {
    const deadline = Date.now() + CONNECT_MILLIS;
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#connect();
        return;
      } catch (error) {
        if (!(error instanceof ProtocolError && CROWDED.has(error.code)) || Date.now() > deadline) {
          this.end(error);
          throw error;
        }
      }
      await this.#wait(attempt);
    }
  }

  /** Opens one connection; settles when the welcome has come, or with the reason why none did. */
  #connect() {
    const welcomed = new Deferred();
    let over = false;
    const began = Date.now();
    let link = null;
    const fail = (error) => {
      over = true;
      clearTimeout(patience);
      link?.close();
      welcomed.reject(error);
    };
    const patience = setTimeout(() => fail(new Unreachable(`no welcome from ${this.url}`)), CONNECT_MILLIS);
    const open = this.options.transport ?? webSocket;
    const heard = {
      opened: () => link.send(pack(this.#hello(), PACKET_DEPTH)),
      message: (bytes) => {
        if (over) return;
        if (this.link === link) return this.#hear(bytes, began);
        try {
          const packet = unpack(bytes);
          if (packet[0] === BYE) return fail(new ProtocolError(packet[1], packet[2]));
          if (packet[0] !== WELCOME) throw malformed("the first packet of a daemon is its welcome");
          clearTimeout(patience);
          this.#begin(link, packet);
          welcomed.resolve();
        } catch (error) {
          fail(error);
        }
      },
      closed: (reason) => {
        if (over) return;
        over = true;
        clearTimeout(patience);
        if (this.link === link) this.#lost(reason, began);
        else welcomed.reject(new Unreachable(`${this.url}: ${reason}`));
      },
    };
    try {
      link = open(this.url, heard);
    } catch (error) {
      fail(new Unreachable(`${this.url}: ${error.message}`));
    }
    return welcomed.promise;
  }

  #hello() {
    const { token, heartbeat, grace } = this.options;
    const features = { attempt: [++this.attempts, this.process] };
    if (heartbeat && heartbeat !== Infinity) features.heartbeat = Math.max(1, Math.round(heartbeat));
    if (grace) features.grace = Math.max(1, Math.round(grace));
    if (this.ticket) features.resume = this.ticket;
    if (this.home !== "main") features.space = this.home;
    if (token) features.token = token;
    return [HELLO, 1, this.client, this.options.name, features];
  }

  /** Takes the welcome of a connection: restores the facts, the turns and the streams, in the order of WIRE.md. */
  #begin(link, packet) {
    const before = this.welcome;
    const [, version, session, space, epoch, sequence, limits, features] = packet;
    this.welcome = { version, session, space, epoch, sequence, limits, features };
    this.link = link;
    this.up = true;
    this.said = this.heard = Date.now();
    this.interval = features.heartbeat ?? Infinity;
    this.inFlight.limits = limits;
    this.ticket = features.secret ? [session, features.secret] : null;
    const resumed = features.resumed === true;
    const moved = before !== null && before.space !== space;
    const place = `the connection is to another space now, it is ${space}, and was ${before?.space}`;
    const turns = moved
      ? this.inFlight.abandon((turn) => new AnotherSpace(`turn ${turn.sequence} was lost before its answer: ${place}`))
      : 0;
    this.inFlight.hold(sequence);
    const facts = this.inFlight.release(!resumed);
    this.#reopen(resumed, moved);
    this.#watch();
    for (const waiter of this.waiters.splice(0)) waiter.resolve();
    this.#leaveRoom();
    if (before === null) return this.#tell("connected", { space });
    this.reconnects++;
    const change = moved ? "another-space" : resumed ? "resumed" : "anew";
    this.#tell(change, { space, facts, turns, ...(moved ? { before: before.space } : {}) });
  }

  #reopen(resumed, moved) {
    const streams = [...this.streams].sort((a, b) => a[0] - b[0]);
    this.streams.clear();
    for (const [number, stream] of streams) stream.reopen(number, resumed, moved);
    if (resumed) for (const number of this.dropped) this.send([ABORT, number, "", false]);
    this.dropped.length = 0;
  }

  /** Sends a ping when nothing else was sent for an interval, and gives a silent connection up after two. */
  #watch() {
    clearInterval(this.timer);
    if (this.interval === Infinity) return;
    this.timer = setInterval(() => {
      const now = Date.now();
      if (now - this.heard > 2 * this.interval) this.#cut(`no data for ${2 * this.interval} ms`);
      else this.#beat(now);
    }, Math.max(1, this.interval / 4));
  }

  #beat(now) {
    if (now - this.said >= this.interval / 2) this.send([PING, 0]);
  }

  #cut(reason) {
    const { link } = this;
    this.#lost(reason, this.heard - LASTING_MILLIS - 1);
    link?.close();
  }

  #lost(reason, began) {
    if (!this.up) return;
    this.up = false;
    this.link = null;
    clearInterval(this.timer);
    if (this.dismissal) return this.end(this.dismissal);
    const broken = new Broken(`the connection to ${this.url} was lost, before the answer: ${reason}`);
    for (const request of this.requests.values()) request.reject(again(broken));
    this.requests.clear();
    this.#tell("lost", { reason });
    if (!this.isOpen) return;
    if (!this.options.reconnect) return this.end(broken);
    this.#comeBack(Date.now() - began > LASTING_MILLIS ? 0 : 1);
  }

  async #comeBack(attempt) {
    for (; this.isOpen; attempt++) {
      await this.#wait(attempt);
      if (!this.isOpen) return;
      try {
        await this.#connect();
        return;
      } catch (error) {
        if (error instanceof ProtocolError && !CROWDED.has(error.code)) {
          this.end(error);
          return;
        }
      }
    }
  }

  /** Waits between attempts, longer and longer, with jitter so that clients do not return at once. */
  #wait(attempt) {
    return new Promise((resolve) => {
      const millis = PAUSES[Math.min(attempt, PAUSES.length - 1)] * (0.5 + Math.random());
      const timer = setTimeout(resolve, millis);
      this.pause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Ends the client: everything that waits gets the error. */
  end(error) {
    if (!this.isOpen) return;
    this.ended = error;
    clearInterval(this.timer);
    this.pause?.();
    this.#sayGoodbye();
    const known = error instanceof ProtocolError || error instanceof Broken;
    this.inFlight.fail((turn) =>
      known ? again(error) : new Closed(`closed before turn ${turn.sequence} was answered`),
    );
    for (const stream of [...this.streams.values()]) stream.fail(error);
    for (const request of this.requests.values()) request.reject(again(error));
    for (const waiter of this.waiters.splice(0)) waiter.reject(again(error));
    this.#leaveRoom();
    if (error instanceof ProtocolError && this.welcome) this.#tell("ended", { reason: error.message });
  }

  #sayGoodbye() {
    const { link } = this;
    if (!link) return;
    this.#write(pack([BYE, "", ""]));
    this.up = false;
    this.link = null;
    link.close();
  }

  async close() {
    const answers = Promise.allSettled(this.inFlight.tickets().map((ticket) => ticket.promise));
    let timer;
    await Promise.race([answers, new Promise((resolve) => (timer = setTimeout(resolve, DRAIN_MILLIS)))]);
    clearTimeout(timer);
    this.end(new Closed(`the connection to ${this.url} is closed`));
  }

  // -- packets --

  /** Sends a packet if there is a connection; what matters is sent again with the next one. */
  send(packet) {
    this.#write(pack(packet, PACKET_DEPTH));
  }

  #write(bytes) {
    if (!this.up) return;
    this.said = Date.now();
    try {
      this.link.send(bytes);
    } catch {
      // it closes, and its end is called
    }
  }

  #hear(bytes, began) {
    this.heard = Date.now();
    try {
      this.#receive(unpack(bytes), bytes.length);
    } catch (error) {
      if (!(error instanceof DataspaceError)) throw error;
      const { link } = this;
      this.#lost(`the daemon broke the protocol: ${error.message}`, began);
      link?.close();
      return;
    }
    this.#beat(this.heard); // timers of pages in the background are slow, messages are not
  }

  #receive(packet, size) {
    const [kind, first, second, third] = packet;
    switch (kind) {
      case VALUES:
        return this.streams.get(first)?.arrive(second, third, size);
      case ACCEPTED:
        second.forEach((epoch, at) => this.inFlight.accept(first + at, epoch));
        return this.#leaveRoom();
      case REFUSAL:
        return this.#refused(first, new Refused(second, third));
      case REACHED:
        for (const number of second) this.streams.get(number)?.reach(first);
        return undefined;
      case DONE:
        return this.#endStream(first, (stream) => stream.done());
      case ERROR:
        return this.#endStream(first, (stream) => stream.fail(new Refused(second, third)));
      case ANSWER:
        return this.#settle(first, (request) => request.resolve(second));
      case DENIED:
        return this.#settle(first, (request) => request.reject(new Refused(second, third)));
      case PING:
        return this.send([PONG, first]);
      case BYE:
        if (!PATIENT.has(first)) this.dismissal = new ProtocolError(first, second);
        return undefined;
      default:
        return undefined; // a later daemon may say more
    }
  }

  #refused(sequence, refusal) {
    const ticket = this.inFlight.refuse(sequence, refusal);
    this.#leaveRoom();
    if (ticket?.restating) this.#tell("refused", { reason: refusal.message, facts: ticket.actions.length });
  }

  #endStream(number, end) {
    const stream = this.streams.get(number);
    this.streams.delete(number);
    if (stream) end(stream);
  }

  #settle(number, settle) {
    const request = this.requests.get(number);
    this.requests.delete(number);
    if (request) settle(request);
  }

  // -- for the verbs --

  async request(verb, args) {
    while (!this.up) {
      this.checkOpen();
      const waiter = new Deferred();
      this.waiters.push(waiter);
      await waiter.promise;
    }
    const number = this.nextRequest++;
    const request = new Deferred();
    this.requests.set(number, request);
    try {
      this.send([REQUEST, number, verb, args]);
    } catch (error) {
      this.requests.delete(number);
      throw error;
    }
    return request.promise;
  }

  async submit(actions) {
    this.checkOpen();
    while (this.inFlight.size >= IN_FLIGHT) {
      const waiter = new Deferred();
      this.room.push(waiter);
      await waiter.promise;
      this.checkOpen();
    }
    return this.inFlight.submit(this.options.owner, actions).promise;
  }

  #leaveRoom() {
    if (this.inFlight.size < IN_FLIGHT || !this.isOpen) for (const waiter of this.room.splice(0)) waiter.resolve();
  }

  openStream(stream, spec, items, bytes, number) {
    this.checkOpen();
    const packed = pack([OPEN, number ?? this.nextStream, { space: this.options.space, ...spec }, items, bytes], PACKET_DEPTH);
    const taken = number ?? this.nextStream++;
    this.streams.set(taken, stream);
    this.#write(packed);
    return taken;
  }

  dropStream(number, stream) {
    if (this.streams.get(number) !== stream) return;
    this.streams.delete(number);
    if (this.up) this.send([ABORT, number, "", false]);
    else this.dropped.push(number);
  }
}

// -- the space ----------------------------------------------------------------------------------------------------

const SETTINGS = {
  space: "main",
  name: "",
  token: "",
  client: "",
  owner: "",
  heartbeat: 15_000,
  grace: 0,
  reconnect: true,
  onConnection: undefined,
  transport: undefined,
};

/**
 * Connects to a daemon, and returns its space.
 *
 * Facts belong to the session and end with it; with `owner` they belong to that durable name. With `grace`, in
 * milliseconds, the session outlives a lost connection for so long. Throws `Unreachable` if nothing answers, and
 * `ProtocolError` if the daemon refuses the session, with the code `unauthorized` for a token that it does not know.
 */
export async function connect(url, options = {}) {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(SETTINGS, name)) {
      throw new UsageError(`no option ${name}, there are ${Object.keys(SETTINGS).join(", ")}`);
    }
  }
  const session = new Session(url, { ...SETTINGS, ...options });
  if (session.options.owner.startsWith("lease:")) {
    throw new UsageError("leases are not kept from JavaScript; use grace, or a durable owner");
  }
  await session.enter();
  return new Space(session);
}

/** A space in a daemon; made by `connect`. */
export class Space {
  #session;
  #handle;

  constructor(session) {
    this.#session = session;
    // a durable owner may have claims of other runs, below 2^48 some that the daemon numbers
    this.#handle = session.options.owner ? 2 ** 48 + Math.floor(Math.random() * 2 ** 52) : 1;
  }

  /** Asserts a fact, and returns its claim when that is on disk. */
  async assert(value) {
    let claim;
    await this.turn((draft) => {
      claim = draft.assert(value);
    });
    return claim;
  }

  /** Sends a message, and returns its epoch. */
  send(value) {
    return this.turn((draft) => draft.send(value));
  }

  /**
   * Calls a function with a draft, commits what it has collected as one turn, and returns the epoch.
   *
   * Throws `Refused` if nothing has happened. Nothing is sent if the function throws.
   */
  async turn(fill) {
    const draft = new Draft(this, () => this.#handle++);
    if (typeof fill(draft)?.then === "function") {
      throw new UsageError("what fills a turn must not wait: the turn is sent when it returns");
    }
    return this.#session.submit(draft.actions);
  }

  /** Observes the changes of a pattern, given as text or as a pattern; JAVASCRIPT.md has the options. */
  observe(pattern, options = {}) {
    this.#session.checkOpen();
    return new Observation(this.#session, pattern, options);
  }

  /** Returns what matches a pattern now, as rows of captures. */
  async matches(pattern) {
    const observation = this.observe(pattern, { quiet: true, window: 1 });
    try {
      return (await observation.read())?.added ?? [];
    } finally {
      observation.close();
    }
  }

  /** Waits until everything sent before has been handled and is on disk; returns the newest epoch. */
  sync() {
    return this.#session.request("sync", {});
  }

  /** Returns the daemon's status. */
  status() {
    return this.#session.request("status", {});
  }

  /** Sends one of the requests of WIRE.md and returns its answer; throws `Refused` where it is denied. */
  request(verb, args = {}) {
    return this.#session.request(verb, args);
  }

  /** Waits until every turn has its answer (10 s at most), and ends the session. */
  close() {
    return this.#session.close();
  }

  /** The welcome of the newest connection: `session`, `space`, `epoch`, `sequence`, `limits`, `features`. */
  get welcome() {
    return this.#session.welcome;
  }

  /** How often a lost connection was made again. */
  get reconnects() {
    return this.#session.reconnects;
  }

  /** How many turns have no answer yet. */
  get inFlight() {
    return this.#session.inFlight.size;
  }
}

if (Symbol.asyncDispose) {
  Object.defineProperty(Space.prototype, Symbol.asyncDispose, { value: Space.prototype.close });
  Object.defineProperty(Observation.prototype, Symbol.asyncDispose, { value: Observation.prototype.return });
}
