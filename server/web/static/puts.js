/**
 * Put: one fact for each key of one owner.
 *
 * Facts of a session, or of its lease, are this client's alone, so it knows which claim a new fact replaces. A durable
 * owner may have other clients, so there the daemon finds what is replaced. Either way it is one turn.
 */

import { Broken, UsageError } from "./errors.js";
import { compare, Record } from "./values.js";
import { exact, lit, matcher } from "./patterns.js";
import { key, pack } from "./packing.js";
import { parse, text } from "./text.js";
import { randomHex } from "./text.js";
import { factOf } from "./turns.js";

export class Puts {
  #space;
  #session;
  #claims = new Map();
  #client = `~put-${randomHex(16)}`;
  #sequence = 0;
  #last = Promise.resolve();

  constructor(space, session) {
    this.#space = space;
    this.#session = session;
  }

  /** Asserts a fact in place of the one with the same key; returns the epoch. Puts take effect in their order. */
  put(value, by, traceparent) {
    const fact = factOf(value);
    const pattern = keyPattern(fact, by);
    const { owner, lease } = this.#session.options;
    const put = this.#last.then(() =>
      owner && !lease ? this.#publish(fact, pattern, traceparent) : this.#replace(fact, pattern, traceparent),
    );
    this.#last = put.catch(() => {});
    return put;
  }

  async #replace(fact, pattern, traceparent) {
    const place = key(usualKey(fact) ?? fact);
    const before = this.#before(fact, pattern, place);
    let claim;
    const epoch = await this.#space.turn((draft) => {
      claim = draft.assert(fact);
      for (const at of before) draft.retract(this.#claims.get(at));
    }, { traceparent });
    for (const at of before) this.#claims.delete(at);
    this.#claims.set(place, claim);
    return epoch;
  }

  /** Returns where the claims are that have the key of a fact: at once for a usual key, else by a look at each. */
  #before(fact, pattern, place) {
    if (key(pattern) === place) return this.#claims.has(place) ? [place] : [];
    const match = matcher(pattern);
    const wanted = match(fact);
    const found = [...this.#claims].map(([at, claim]) => [at, match(claim.value)]);
    return found.filter(([, row]) => row !== null && compare(row, wanted) === 0).map(([at]) => at);
  }

  /** Has the daemon replace what the durable owner has under the key; a number that was published before changes nothing. */
  async #publish(fact, pattern, traceparent) {
    const { owner } = this.#session.options;
    const told = { keys: [pack([["assert", fact]])], owner, client: this.#client, sequence: ++this.#sequence, by: pattern };
    if (traceparent) told.traceparent = traceparent;
    for (;;) {
      try {
        return await this.#session.request("publish", told);
      } catch (error) {
        if (!(error instanceof Broken && this.#session.isOpen)) throw error;
      }
    }
  }
}

/** Returns the pattern of all facts that have the key of this one. */
function keyPattern(fact, by) {
  if (by !== undefined && by !== null) {
    const pattern = typeof by === "string" ? parse(by) : by;
    if (matcher(pattern)(fact) === null) throw new UsageError(`${text(fact)} does not have the key ${text(pattern)}`);
    return pattern;
  }
  const usual = usualKey(fact);
  if (usual) return usual;
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
