/** Turns as a program makes them: claims, drafts, and what a turn expects. */

import { Refused, UsageError } from "./errors.js";
import { Record } from "./values.js";
import { parse } from "./text.js";
import { ASSERT, REPLACE, RETRACT, SEND } from "./packets.js";

const ABSENT = 0;
const EXACTLY = 1;
const UNCHANGED = 2;

const formOf = (pattern) => (typeof pattern === "string" ? parse(pattern) : pattern);

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
export function unchanged(pattern, { since }) {
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

  constructor(space, handle, value) {
    this.#space = space;
    this.handle = handle;
    this.value = value;
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
