/** Turns as a program makes them: claims, drafts, and what a turn expects. */

import { noOptions, optionsOf, Refused, UsageError } from "./errors.js";
import { Record } from "./values.js";
import { parse } from "./text.js";
import { ASSERT, PUT, REPLACE, RETRACT, SEND, WITHDRAW } from "./packets.js";
import { formOf, keyPattern } from "./puts.js";

const ABSENT = 0;
const EXACTLY = 1;
const UNCHANGED = 2;

/** Returns the expectation that no fact matches a pattern. */
export const absent = (pattern) => [ABSENT, formOf(pattern)];

/**
 * Returns the expectation that a pattern has these captures and no others, in any order.
 *
 * A pattern without captures has the row `[]` if any fact matches it.
 */
export function exactly(pattern, rows) {
  const listed = [...rows];
  for (const row of listed) {
    if (!Array.isArray(row)) throw new UsageError("a row is an array of captures, such as [1]");
  }
  return [EXACTLY, formOf(pattern), listed];
}

/** Returns the expectation that no fact that matches has come or gone after an epoch, not even one that came back. */
export function unchanged(pattern, options = {}) {
  const { since } = optionsOf({ since: undefined }, options);
  if (!(Number.isSafeInteger(since) && since >= 0)) throw new UsageError(`since is the number of an epoch, not ${since}`);
  return [UNCHANGED, formOf(pattern), since];
}

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/s;

/** Refuses text that no daemon reads as a traceparent; none, the empty text, is fine. */
export function checkTraceparent(text) {
  if (text === "") return;
  const found = typeof text === "string" && text.length <= 512 ? TRACEPARENT.exec(text) : null;
  const [, version, trace, span, more] = found ?? [];
  const known = found && version !== "ff" && (version !== "00" || more === undefined);
  if (known && /[^0]/.test(trace) && /[^0]/.test(span)) return;
  const sample = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  throw new UsageError(`a traceparent such as ${sample} is needed, not ${String(text).slice(0, 80)}`);
}

/** A claim on a fact: `retract` ends it, `replace` puts another fact in its place, in one turn. */
export class Claim {
  #space;

  constructor(space, handle, value, owner = "") {
    this.#space = space;
    this.handle = handle;
    this.value = value;
    this.owner = owner;
  }

  /** Ends the claim, and returns the epoch in which it ended. */
  retract(options) {
    return this.#space.turn((draft) => draft.retract(this), options);
  }

  /** Asserts a fact and ends the claim on the previous one in one turn; the claim is on the new one then. */
  async replace(value, options) {
    const before = [this.handle, this.value];
    const turn = this.#space.turn((draft) => draft.replace(this, value), options);
    const { handle } = this;
    try {
      return await turn;
    } catch (error) {
      if (error instanceof Refused && this.handle === handle) [this.handle, this.value] = before;
      throw error;
    }
  }
}

const OWNED = { owner: "" };
const KEYED = { by: null, owner: "" };

/** Collects the actions of one turn: `space.turn((draft) => …)` passes it. */
export class Draft {
  #space;
  #own;
  #take;
  #others = new Map();
  #isOver;

  /**
   * `own` is the owner that the client's own facts have by name, `take` returns a handle for it or for a durable owner, `isOver`
   * returns true once the function that fills the turn has returned.
   */
  constructor(space, own, take, isOver = () => false) {
    this.#isOver = isOver;
    this.#space = space;
    this.#own = own;
    this.#take = take;
    this.actions = [];
  }

  /** Asserts a fact, of the client or of a durable `owner`, and returns its claim. */
  assert(value, options = {}) {
    const { owner } = optionsOf(OWNED, options);
    return this.#begin(owner, value, (handle, fact) => [ASSERT, handle, fact]);
  }

  /** Ends a claim. */
  retract(claim, ...more) {
    noOptions(more);
    this.#of(claim.owner).push([RETRACT, claim.handle]);
  }

  /** Asserts a fact and ends the claim on the previous one; the claim is on the new fact then. */
  replace(claim, value, ...more) {
    noOptions(more);
    const handle = this.#take(this.#isOther(claim.owner));
    this.#of(claim.owner).push([REPLACE, claim.handle, handle, factOf(value)]);
    claim.handle = handle;
    claim.value = value;
    return claim;
  }

  /** Asserts a fact in place of the owner's facts with the same key, and returns its claim; see `Space.put`. */
  put(value, options = {}) {
    const { by, owner } = optionsOf(KEYED, options);
    const pattern = keyPattern(factOf(value), by);
    return this.#begin(owner, value, (handle, fact) => [PUT, handle, fact, pattern]);
  }

  /** Ends the owner's claims on all facts that match, whichever client asserted them. */
  withdraw(pattern, options = {}) {
    const { owner } = optionsOf(OWNED, options);
    this.#of(owner).push([WITHDRAW, formOf(pattern)]);
  }

  /** Sends a message. */
  send(value, ...more) {
    noOptions(more);
    this.#check();
    this.actions.push([SEND, factOf(value)]);
  }

  /** Returns pairs of an owner and its actions; the client's own first, unless there are none of these. */
  parts() {
    const others = [...this.#others];
    return this.actions.length || !others.length ? [[this.#own, this.actions], ...others] : others;
  }

  #begin(owner, value, actionOf) {
    const handle = this.#take(this.#isOther(owner));
    this.#of(owner).push(actionOf(handle, factOf(value)));
    return new Claim(this.#space, handle, value, owner);
  }

  #isOther(owner) {
    return owner !== "" && owner !== this.#own;
  }

  #check() {
    if (this.#isOver()) {
      throw new UsageError(
        "this turn has ended, as its function has returned, and nothing more can be part of it: do it in the function, or in another turn"
      );
    }
  }

  #of(owner) {
    this.#check();
    if (!this.#isOther(owner)) return this.actions;
    if (owner.startsWith("lease:")) throw new UsageError("a lease is asked for with the option `lease` of connect");
    if (!this.#others.has(owner)) this.#others.set(owner, []);
    return this.#others.get(owner);
  }
}

/** Refuses text that reads as a record: `"present(1)"` is text, and almost never what was meant. */
export function factOf(value) {
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
