/** The JSON form of values, and their text: written and parsed. */

import { UsageError } from "./errors.js";
import { asTime, entries, Float, isFloat, mapOf, rank, Record, Time } from "./values.js";
import { DEPTH, LONE } from "./packing.js";
import { float } from "./unpacking.js";

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
  "@bytes": bytesOf,
  "@time": (said) => Time.parse(said),
};

/**
 * Returns the value that was said in JSON, as `JSON.parse` gives it; throws `UsageError` for what is no value's.
 *
 * It reads and refuses what Python's `from_json` does: text in tags is as it would be written, and JSON has 64 levels.
 */
export function fromJson(said) {
  return read(said, DEPTH);
}

function read(said, depth) {
  if (said === null || typeof said === "boolean" || typeof said === "number") return said;
  if (typeof said === "string") return whole(said);
  if (typeof said !== "object") throw new UsageError(`${typeof said} is no JSON`);
  const names = Object.keys(said);
  const tags = Array.isArray(said) ? [] : names.filter((name) => name.startsWith("@"));
  const [tag] = tags;
  if (names.length === 1 && tags.length && Object.hasOwn(TAGS, tag)) {
    if (typeof said[tag] !== "string") throw new UsageError(`${tag} has text, not ${JSON.stringify(said[tag])}`);
    return TAGS[tag](said[tag]);
  }
  if (depth <= 0) throw new UsageError(`nested deeper than ${DEPTH} levels`);
  const below = (part) => read(part, depth - 1);
  if (Array.isArray(said)) return said.map(below);
  if (!tags.length) return mapOf(names.map((name) => [whole(name), below(said[name])]));
  if (tag === "@" && names.length === 2 && Array.isArray(said.fields)) {
    return new Record(below(said["@"]), ...said.fields.map(below));
  }
  if (tag === "@map" && names.length === 1 && Array.isArray(said[tag]) && said[tag].every(isPair)) {
    return mapOf(said[tag].map(([name, part]) => [below(name), below(part)]));
  }
  throw new UsageError(`an object with keys ${names.join(", ")} is none of the tagged forms`);
}

const isPair = (pair) => Array.isArray(pair) && pair.length === 2;

function whole(said) {
  if (LONE.test(said)) throw new UsageError("text with half of a surrogate pair is no value");
  return said;
}

const small = (n) => (n >= Number.MIN_SAFE_INTEGER && n <= Number.MAX_SAFE_INTEGER ? Number(n) : n);

const DECIMAL_DIGITS = 640; // beyond them integers are written in base 16

function integerOf(said) {
  const isInteger = /^-?(?:0x[0-9a-fA-F]+|0|[1-9][0-9]*)$/.test(said);
  if (!isInteger || (!said.includes("x") && said.replace("-", "").length > DECIMAL_DIGITS)) {
    throw new UsageError(`${said.slice(0, 40)} is no integer`);
  }
  return said.startsWith("-") ? -BigInt(said.slice(1)) : BigInt(said);
}

function floatOf(said) {
  const known = { nan: NaN, inf: Infinity, "-inf": -Infinity }[said];
  if (known !== undefined) return known;
  const n = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$/.test(said) ? Number(said) : NaN;
  if (!Number.isFinite(n)) throw new UsageError(`${said.slice(0, 40)} is no float`);
  return n;
}

function bytesOf(said) {
  let characters = null;
  try {
    characters = atob(said);
  } catch {
    // no base 64
  }
  if (characters === null || btoa(characters) !== said) throw new UsageError(`${said.slice(0, 40)} is no bytes in base 64`);
  return Uint8Array.from(characters, (character) => character.charCodeAt(0));
}

// -- writing text --

const WORD = /^[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*$/;
const KEYWORDS = { true: true, false: false, null: null, nan: NaN, inf: Infinity };
export const CLASSES = ["bool", "int", "float", "str", "bytes", "time", "null", "record", "seq", "map"];

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
export function floatText(n) {
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

export const hex = (n, digits) => n.toString(16).padStart(digits, "0");

export const randomHex = (bytes) =>
  Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => hex(byte, 2)).join("");

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

// -- reading text --

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
    let said = this.match(/\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[-+]\d{2}:\d{2})/y);
    if (!said || /[\p{L}\p{N}]/u.test(this.said[this.at] ?? "")) said += this.match(/[-+:.A-Za-z0-9]*/y);
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
