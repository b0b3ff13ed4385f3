/**
 * Put and withdraw: actions of a turn that end claims by a key or by a pattern, without naming them.
 *
 * The daemon finds these claims in the state in which the turn is committed. A client that asserts its claims again after
 * a lost connection follows the same rule with those that it keeps: `endPut` and `endWithdrawn`.
 */

import { UsageError } from "./errors.js";
import { Record } from "./values.js";
import { exact, lit, matcher } from "./patterns.js";
import { key } from "./packing.js";
import { parse, text } from "./text.js";

/** Returns a pattern that may be given as text. */
export const formOf = (pattern) => (typeof pattern === "string" ? parse(pattern) : pattern);

/** Returns the pattern `by` of a put, null for the usual key; throws `UsageError` for a fact without that key. */
export function keyPattern(fact, by) {
  if (by !== undefined && by !== null) {
    const pattern = formOf(by);
    if (matcher(pattern)(fact) === null) throw new UsageError(`${text(fact)} does not have the key ${text(pattern)}`);
    return pattern;
  }
  if (usualKey(fact) !== null) return null;
  const every = fact instanceof Record && fact.fields.length ? text(new Record(fact.label, ...fact.fields.map(() => new Record("_")))) : "";
  const whole = every ? `; for one such fact in all add { by: '${every}' }` : "";
  throw new UsageError(`put needs a record with a key and a value, such as config("rate", 7), not ${text(fact)}${whole}`);
}

/** Returns the pattern of the facts that differ in the last field alone; null for a record of fewer than two fields. */
function usualKey(fact) {
  if (!(fact instanceof Record) || fact.fields.length < 2) return null;
  const fields = fact.fields.slice(0, -1).map((each) => (isPlain(each) ? each : lit(each)));
  return exact(new Record(fact.label, ...fields, new Record("_")));
}

const isPlain = (value) => typeof value !== "object" || value === null;

/** Ends claims, a map from handles to facts, on facts that match a pattern. */
export function endWithdrawn(claims, pattern) {
  const match = matcher(pattern);
  for (const [handle, fact] of claims) if (match(fact) !== null) claims.delete(handle);
}

/** Ends claims on facts with the key of one that is put by a pattern, or by null for the usual key. */
export function endPut(claims, fact, by) {
  const match = matcher(by ?? usualKey(fact)); // which captures nothing
  const wanted = key(match(fact));
  for (const [handle, each] of claims) {
    const row = match(each);
    if (row !== null && key(row) === wanted) claims.delete(handle);
  }
}
