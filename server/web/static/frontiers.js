/**
 * Times of topics, and what a subscriber makes of the messages of its partitions: whole epochs and one frontier.
 *
 * A time is an integer, or an array of integers that are compared in every place at once. A message at or before an
 * element of the filter belongs to an epoch of which something was sent before the subscription, and is dropped.
 *
 * Always: of each epoch all batches are delivered or none; the frontier does not go back.
 */

import { ProtocolError, UsageError } from "./errors.js";
import { compare } from "./values.js";
import { key } from "./packing.js";

const SNAPSHOT = 0;
const PROGRESS = 1;
const BATCH = 2;
const CRASHED = 3;

/** True if the first time is the other, or comes before it. */
export const lessEqual = (one, other) =>
  Array.isArray(one) ? one.every((place, at) => place <= other[at]) : one <= other;

/** True if one of these times is at or before a time. */
export const reaches = (times, time) => times.some((each) => lessEqual(each, time));

/** Counts of times, which `change` moves; the frontier is made of the least that are counted. */
export class Counts {
  #counts = new Map();

  change(changes) {
    for (const [time, by] of changes) {
      const at = key(time);
      const count = (this.#counts.get(at)?.[1] ?? 0) + by;
      if (count) this.#counts.set(at, [time, count]);
      else this.#counts.delete(at);
    }
  }

  /** The times that are held, in order. */
  get times() {
    const held = [...this.#counts.values()].filter(([, count]) => count > 0);
    return held.map(([time]) => time).sort(compare);
  }

  /** The least of them: none of these comes before another. */
  get frontier() {
    const least = [];
    for (const time of this.times) if (!reaches(least, time)) least.push(time);
    return least;
  }

  has(time) {
    return (this.#counts.get(key(time))?.[1] ?? 0) > 0;
  }
}

/** Merges the messages of some partitions into events: batches, crashes, and the frontier as it moves. */
export class Merging {
  #partitions;
  #waiting;
  #early = [];
  #lower = new Counts();
  #filter = [];
  #active = new Map();
  #told = null;

  constructor(partitions, atomic, upTo) {
    this.#partitions = new Set(partitions);
    this.#waiting = new Set(partitions);
    if (!this.#partitions.size) throw new UsageError("a subscription needs a partition at least");
    this.atomic = atomic;
    this.upTo = upTo;
  }

  /** What may still come lies at or after one of these times. */
  get frontier() {
    return this.#told ?? [];
  }

  /** True if nothing more can come. */
  get ended() {
    return !this.#waiting.size && this.frontier.every((each) => this.#beyond(each));
  }

  /** Returns the events that a message means, in order. */
  take(message) {
    const [kind, partition] = Array.isArray(message) ? message : [];
    if (!this.#partitions.has(partition) || !(kind >= SNAPSHOT && kind <= CRASHED)) {
      throw new ProtocolError("malformed", "a value of a topic's stream that is no message of its partitions");
    }
    if (kind === SNAPSHOT) return this.#join(message);
    if (this.#waiting.size) {
      this.#early.push(message);
      return [];
    }
    return this.#act(message);
  }

  #join([, partition, lower, upper]) {
    this.#waiting.delete(partition);
    this.#lower.change(lower.map((time) => [time, 1]));
    for (const time of upper) {
      if (this.#covers(time)) continue;
      this.#filter = this.#filter.filter((each) => !lessEqual(each, time));
      this.#filter.push(time);
    }
    if (this.#waiting.size) return [];
    const early = this.#early.splice(0);
    return [...this.#moved(), ...early.flatMap((message) => this.#act(message))];
  }

  #act(message) {
    const [kind, partition] = message;
    if (kind === BATCH) return this.#deliver(partition, message[2], message[3]);
    if (kind === PROGRESS) {
      this.#lower.change(message[2]);
      return this.#moved();
    }
    const [, , since, , reason, changes] = message;
    const epochs = [...this.#active.values()].filter((time) => reaches(since, time)).sort(compare);
    this.#lower.change(changes);
    return [{ type: "crash", partition, since, epochs, reason }, ...this.#moved()];
  }

  #deliver(partition, time, items) {
    if ((this.atomic && this.#covers(time)) || this.#beyond(time)) return [];
    this.#active.set(key(time), time);
    return [{ type: "batch", partition, time, items }];
  }

  #covers(time) {
    return this.#filter.some((each) => lessEqual(time, each));
  }

  #beyond(time) {
    return this.upTo !== null && lessEqual(this.upTo, time);
  }

  /** Forgets what the frontier has passed, and returns it if it is another one. */
  #moved() {
    const times = this.#lower.frontier;
    this.#filter = this.#filter.filter((each) => reaches(times, each));
    for (const [at, time] of this.#active) if (!reaches(times, time)) this.#active.delete(at);
    if (this.#told !== null && compare(times, this.#told) === 0) return [];
    this.#told = times;
    return [{ type: "frontier", times }];
  }
}
