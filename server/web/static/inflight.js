/** Turns that are submitted and not answered, and what is sent again after a connection or a lease ended. */

import { Refused } from "./errors.js";
import { elements, pack } from "./packing.js";
import { ASSERT, Deferred, PACKET_DEPTH, PUT, REPLACE, RETRACT, SPARE, TURN, WITHDRAW } from "./packets.js";
import { endPut, endWithdrawn } from "./puts.js";

/** A submitted turn; `restating` ones assert the claims of the session again, and nothing waits for them. */
class Ticket extends Deferred {
  constructor(sequence, owner, actions, { expected = [], others = [], traceparent = "", deliveries = [], restating = false } = {}) {
    super();
    this.sequence = sequence;
    this.owner = owner;
    this.actions = actions;
    this.expected = expected;
    this.others = others; // pairs of a durable owner and its actions, whose claims are not asserted again
    this.traceparent = traceparent;
    this.deliveries = deliveries; // pairs of a group, and of jobs that are done with the turn
    this.restating = restating;
    this.promise.catch(() => {}); // the caller of `turn` gets it; of others the application hears by its events
  }
}

/** Applies what a turn of an owner does to its claims, a map from handles to facts. */
function applyTo(claims, owner, ticket) {
  if (ticket.owner !== owner || ticket.restating) return;
  for (const [verb, handle, next, value] of ticket.actions) {
    if (verb === ASSERT) {
      claims.set(handle, next);
    } else if (verb === RETRACT) {
      claims.delete(handle);
    } else if (verb === REPLACE) {
      claims.delete(handle);
      claims.set(next, value);
    } else if (verb === WITHDRAW) {
      endWithdrawn(claims, handle);
    } else if (verb === PUT) {
      endPut(claims, next, value);
      claims.set(handle, next);
    }
  }
}

/**
 * The turns that are submitted and not answered, and what is sent again after a connection ended.
 *
 * Turns up to `Welcome.sequence` are sent again as they are, for their epochs. The others are held until it is known
 * whether the session goes on; if it does not, its claims are asserted again first, in turns of their own.
 */
export class InFlight {
  /** `owner` is the one whose claims are asserted again: empty for the session's, or a lease. */
  constructor(space, owner, send) {
    this.space = space;
    this.owner = owner;
    this.send = send;
    this.limits = {};
    this.sequence = 0;
    this.applied = 0;
    this.claims = new Map();
    this.sent = new Map(); // by ascending numbers
    this.answered = new Map(); // before older ones
    this.held = [];
    this.numbers = []; // of the turns that were sent before the present connection and are held by it
  }

  get size() {
    return this.sent.size + (this.held?.length ?? 0);
  }

  tickets() {
    return [...this.sent.values(), ...(this.held ?? [])];
  }

  submit(owner, actions, more) {
    const ticket = new Ticket(this.sequence + 1, owner, actions, more);
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
      applyTo(this.claims, this.owner, this.answered.get(sequence));
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

  /** Drops a turn if it is held, and so has not taken effect; returns whether it was. */
  withdraw(ticket) {
    const at = this.held?.indexOf(ticket) ?? -1;
    if (at >= 0) this.held.splice(at, 1);
    return at >= 0;
  }

  /** Sends nothing until `release`: the claims may have ended. */
  hold() {
    this.held ??= [];
  }

  /** Begins a connection to a daemon that has applied turns up to a number; nothing else is sent until `release`. */
  begin(applied) {
    const beyond = [...this.sent.values()].filter((ticket) => ticket.sequence > applied);
    this.held = [...beyond, ...(this.held ?? [])];
    this.numbers = beyond.map((ticket) => [ticket, ticket.sequence]);
    for (const ticket of beyond) this.sent.delete(ticket.sequence);
    for (const ticket of this.sent.values()) this.send(this.#packed(ticket));
    this.applied = applied;
    this.sequence = Math.max(this.sequence, applied);
  }

  /**
   * Makes turns as they were before the present connection, whose daemon has applied none.
   *
   * Its welcome may have had too low a number: a turn that was applied elsewhere had a higher one since, and a turn that
   * was sent nowhere else the number of another one. So the latter are held.
   */
  takeBack() {
    const left = new Set(this.tickets().filter((ticket) => !ticket.restating));
    const sent = [...this.sent].filter(([at]) => at <= this.applied).map(([, ticket]) => ticket);
    for (const ticket of sent) left.delete(ticket);
    for (const [ticket, number] of this.numbers) {
      if (!left.delete(ticket) && !ticket.restating) continue;
      ticket.sequence = number;
      sent.push(ticket);
    }
    this.numbers = [];
    this.sent = new Map(sent.sort((a, b) => a.sequence - b.sequence).map((ticket) => [ticket.sequence, ticket]));
    this.held = [...left];
  }

  /** True if a turn without an answer is one of the owner whose claims are asserted again. */
  isOwn(sequence) {
    return this.sent.get(sequence)?.owner === this.owner;
  }

  /** Holds a turn that was refused because its lease had ended, to be sent under another number. */
  keep(sequence) {
    const ticket = this.sent.get(sequence);
    this.sent.delete(sequence);
    this.#count();
    this.hold();
    this.held.push(ticket);
  }

  /** Sends what was held, after the claims if those have ended; returns how many facts are asserted again. */
  release(restate) {
    const claims = new Map(this.claims);
    const known = [...this.answered, ...this.sent].sort((a, b) => a[0] - b[0]);
    if (restate) for (const [, ticket] of known) applyTo(claims, this.owner, ticket);
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
        yield new Ticket(0, this.owner, part, { restating: true });
        [part, used] = [[], 0];
      }
      part.push(action);
      used += cost;
    }
    if (part.length) yield new Ticket(0, this.owner, part, { restating: true });
  }

  #packed({ sequence, owner, actions, expected, others, traceparent, deliveries }) {
    const optional = [expected, others, traceparent, deliveries];
    while (optional.length && !optional.at(-1).length) optional.pop();
    return pack([TURN, sequence, this.space, owner, actions, ...optional], PACKET_DEPTH);
  }
}
