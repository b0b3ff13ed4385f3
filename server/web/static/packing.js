/** Values to the bytes of msgpack, each in its shortest form. */

import { UsageError } from "./errors.js";
import { asTime, entries, Float, isMap, noValue, Record, Time } from "./values.js";

export const DEPTH = 64;
export const RECORD = 1;
export const BIG_INTEGER = 2;
export const MAP = 3;
const MAP_ELEMENTS = 8;

const encoder = new TextEncoder();
export const TWO_32 = 2 ** 32;

let out = new Uint8Array(4096);
let outView = new DataView(out.buffer);
let end = 0;
export let elements = 0;

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

export const LONE = /\p{Surrogate}/u;

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
export function bigSize(n) {
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

/**
 * Returns text or a number that is the same for equal values alone, to be the key of a `Map` or an element of a `Set`.
 */
export function key(value) {
  if (typeof value === "string") return `\u0100${value}`; // no text of packed bytes has this character
  if (Number.isSafeInteger(value) && !Object.is(value, -0)) return value;
  if (typeof value === "bigint" && Number.isSafeInteger(Number(value))) return Number(value); // the same integer
  const bytes = pack(value);
  let made = "";
  for (let at = 0; at < bytes.length; at += 4096) {
    made += String.fromCharCode.apply(null, bytes.subarray(at, at + 4096));
  }
  return made;
}
