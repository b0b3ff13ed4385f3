/** Patterns: how they are made, what their captures are called, and what they match. */

import { optionsOf, UsageError } from "./errors.js";
import { entries, equal, isFloat, isMap, rank, Record } from "./values.js";
import { key } from "./packing.js";
import { CLASSES, parse, text } from "./text.js";

/** Returns the pattern that matches anything, or anything of a class such as `"int"`. */
export const any = (ofClass) => (ofClass === undefined ? new Record("_") : new Record("_", ofClass));

/** Returns the pattern that captures what is in its place, under a name, of a class, and where `sub` matches. */
export function capture(name = null, options = {}) {
  const { class: ofClass, sub } = optionsOf({ class: null, sub: any() }, options);
  return new Record("$", name, ofClass, sub);
}

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


/** Returns a function from a value to its captures, in the order of `captureNames`, or to null where it does not match. */
export function matcher(pattern) {
  const form = typeof pattern === "string" ? parse(pattern) : pattern;
  return (value) => {
    const row = [];
    return matches(form, value, false, row, new Map()) ? row : null;
  };
}

/** Returns true if a value matches, and adds what is captured to the row; `whole` allows no further parts. */
function matches(pattern, value, whole, row, named) {
  if (pattern instanceof Record) return matchesRecord(pattern, value, whole, row, named);
  if (Array.isArray(pattern)) {
    return Array.isArray(value) && matchesParts(pattern, value, whole, row, named);
  }
  if (rank(pattern) === MAP_RANK) return matchesMap(pattern, value, whole, row, named);
  return equal(pattern, value);
}

function matchesRecord(pattern, value, whole, row, named) {
  const { label, fields } = pattern;
  switch (label) {
    case "_":
      return !fields.length || isOf(fields[0], value);
    case "$":
      return fields.length === 3 ? captures(fields, value, row, named) : noPattern(pattern);
    case "lit":
      return fields.length === 1 ? equal(fields[0], value) : noPattern(pattern);
    case "exact":
      return fields.length === 1 ? matches(fields[0], value, true, row, named) : noPattern(pattern);
    default:
      return (
        value instanceof Record &&
        equal(label, value.label) &&
        matchesParts(fields, value.fields, whole, row, named)
      );
  }
}

function captures([name, ofClass, sub], value, row, named) {
  if (ofClass !== null && !isOf(ofClass, value)) return false;
  if (name !== null && named.has(name)) {
    if (!equal(named.get(name), value)) return false;
  } else {
    row.push(value);
    if (name !== null) named.set(name, value);
  }
  return matches(sub, value, false, row, named);
}

function matchesParts(patterns, values, whole, row, named) {
  if (whole ? values.length !== patterns.length : values.length < patterns.length) return false;
  return patterns.every((each, at) => matches(each, values[at], false, row, named));
}

function matchesMap(pattern, value, whole, row, named) {
  if (rank(value) !== MAP_RANK) return false;
  const wanted = entries(pattern);
  const there = new Map(entries(value).map(([at, part]) => [key(at), part]));
  if (whole && there.size !== wanted.length) return false;
  return wanted.every(([at, each]) => there.has(key(at)) && matches(each, there.get(key(at)), false, row, named));
}

const MAP_RANK = 9;
const CLASS_OF_RANK = { 0: "null", 1: "bool", 4: "str", 5: "bytes", 6: "time", 7: "seq", 8: "record", 9: "map" };

function isOf(ofClass, value) {
  if (!CLASSES.includes(ofClass)) throw new UsageError(`${text(ofClass)} is no class, which are ${CLASSES.join(", ")}`);
  return (CLASS_OF_RANK[rank(value)] ?? (isFloat(value) || Number.isNaN(value) ? "float" : "int")) === ofClass;
}

function noPattern(form) {
  throw new UsageError(`${text(form)} is no pattern`);
}
