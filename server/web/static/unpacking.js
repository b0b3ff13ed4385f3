/** Bytes of msgpack to values; anything else is malformed. */

import { malformed, ProtocolError } from "./errors.js";
import { Float, mapOf, Record, setEntry, Time } from "./values.js";
import { BIG_INTEGER, bigSize, DEPTH, MAP, RECORD, TWO_32 } from "./packing.js";

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

export const float = (n) => (Number.isInteger(n) ? new Float(n) : n);

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
export function inside(count, depth) {
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
    setEntry(made, name, read(below));
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
