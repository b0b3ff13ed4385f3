/**
 * Subscribing to topics: whole epochs, each once nothing more of it can come.
 *
 * Always: each epoch is seen whole or not at all, once, however often the connection breaks; those of which a vanished
 * producer could have sent more have the reason in `crashed`; what waits here is bounded by the credit, and by
 * `openBytes` what has come of epochs that are not complete.
 */

import { again, Broken, optionsOf, ProtocolError, Refused, UsageError } from "./errors.js";
import { compare } from "./values.js";
import { key } from "./packing.js";
import { unpack } from "./unpacking.js";
import { ASK, Deferred } from "./packets.js";
import { lessEqual, Merging, reaches } from "./frontiers.js";

const ASKED = 1024;
const ASKED_BYTES = 1 << 20;
const OVERHEAD = 128;
const LOOKUP_MILLIS = 30_000;

const OPTIONS = {
  partitions: null,
  atomic: true,
  asOf: null,
  upTo: null,
  slow: "fail",
  timeout: 0,
  openBytes: 256 << 20,
};

/** All items of one time, in the order of partitions and of sending; `crashed` is why some may be missing, or empty. */
export class TopicEpoch {
  constructor(time, items, crashed) {
    this.time = time;
    this.items = items;
    this.crashed = crashed;
  }
}

/** The whole epochs of a topic: `for await (const { time, items } of subscription)`. Leaving the loop ends it. */
export class Subscription {
  #session;
  #options;
  #found;
  #merging;
  #stream = null;
  #inbox = [];
  #skipped = [0, 0];
  #taken = 0;
  #takenBytes = 0;
  #asked = 0;
  #askedBytes = 0;
  #came = 0;
  #delivered = new Map();
  #skip = new Map();
  #reached = null;
  #open = new Map();
  #openBytes = 0;
  #crashed = new Map();
  #complete = [];
  #arrival = new Deferred();
  #over = false;
  #error = null;

  constructor(session, topic, options) {
    this.topic = topic;
    this.#session = session;
    this.#options = optionsOf(OPTIONS, options);
  }

  /** Finds the topic, and subscribes; what is sent after it returns is not missed. */
  async open() {
    const { partitions, asOf } = this.#options;
    this.#found = await this.#lookUp();
    this.partitions = partitions ?? Array.from({ length: this.#found.partitions }, (_, at) => at);
    this.#begin(asOf === null ? null : this.#times(asOf));
    if (asOf === null) while (this.#reached === null && !this.#over) await this.#arrival.promise;
    if (this.#error) throw again(this.#error);
    return this;
  }

  async #lookUp() {
    const deadline = Date.now() + this.#options.timeout;
    for (;;) {
      const wait = Math.round(Math.min(Math.max(0, deadline - Date.now()), LOOKUP_MILLIS));
      try {
        return await this.#session.request("lookup", { topic: this.topic, wait });
      } catch (error) {
        const missing = error instanceof Broken || (error instanceof Refused && error.code === "no-topic");
        if (!missing || Date.now() >= deadline) throw error;
      }
    }
  }

  /** Returns the times of `asOf`: one, or several of which it begins at or after any, in an array of arrays or numbers. */
  #times(asOf) {
    const one = !Array.isArray(asOf) || (this.#found.dimensions > 0 && !Array.isArray(asOf[0]));
    const times = one ? [asOf] : asOf;
    const { upTo } = this.#options;
    if (upTo !== null && times.every((each) => lessEqual(upTo, each))) {
      throw new UsageError("no time is at or after `asOf` and before `upTo`");
    }
    return times;
  }

  // -- the application's side --

  /** Returns the next epoch that is complete, or `undefined` at the end. */
  async read() {
    while (!this.#complete.length) {
      const event = await this.nextEvent();
      this.#complete.push(...(event === undefined ? this.#rest([]) : this.#collect(event)));
      if (event === undefined && !this.#complete.length) return undefined;
    }
    return this.#complete.shift();
  }

  async next() {
    const value = await this.read();
    return { value, done: value === undefined };
  }

  /** Ends the subscription; what has come and is not read is dropped. */
  close() {
    this.#abort();
    this.#inbox.length = this.#complete.length = 0;
    this.#open.clear();
  }

  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** Yields what comes as it comes, and not by whole epochs: `{type}` is `batch`, `frontier` or `crash`. */
  async *events() {
    try {
      for (let event; (event = await this.nextEvent()) !== undefined; ) yield event;
    } finally {
      this.close();
    }
  }

  /** What may still come lies at or after one of these times; empty at the end. */
  get frontier() {
    return this.#merging.frontier;
  }

  /** Returns the next of `events()`, or `undefined` at the end. */
  async nextEvent() {
    while (!this.#inbox.length) {
      if (this.#error) throw again(this.#error);
      if (this.#over) return undefined;
      await this.#arrival.promise;
    }
    const [event, items, bytes] = this.#inbox.shift();
    this.#took(items, bytes);
    return event;
  }

  /** Returns the epochs that an event completes, in the order of their times. */
  #collect(event) {
    if (event.type === "frontier") return this.#rest(event.times);
    if (event.type === "crash") {
      for (const at of event.epochs.map(key)) {
        if (!this.#crashed.has(at)) this.#crashed.set(at, event.reason); // the first reason stays, as in the journal
      }
      return [];
    }
    const at = key(event.time);
    if (!this.#open.has(at)) this.#open.set(at, { time: event.time, batches: [], bytes: 0 });
    const open = this.#open.get(at);
    open.batches.push(event);
    open.bytes += event.bytes + OVERHEAD;
    this.#openBytes += event.bytes + OVERHEAD;
    if (this.#openBytes > this.#options.openBytes) {
      throw this.#overfull(`${this.#open.size} epochs with ${this.#openBytes} bytes`);
    }
    return [];
  }

  #rest(frontier) {
    const passed = [...this.#open].filter(([, { time }]) => !reaches(frontier, time));
    passed.sort(([, one], [, other]) => compare(one.time, other.time));
    return passed.map(([at, { time, batches, bytes }]) => {
      this.#open.delete(at);
      this.#openBytes -= bytes;
      const items = batches.sort((one, other) => one.partition - other.partition).flatMap((batch) => batch.items);
      const crashed = this.#crashed.get(at) ?? "";
      this.#crashed.delete(at);
      return new TopicEpoch(time, items, crashed);
    });
  }

  #overfull(what) {
    const times = JSON.stringify(this.frontier);
    this.#error = new Refused(
      "limit",
      `${what} are open, the limit is openBytes=${this.#options.openBytes}: a producer holds ${times} back`,
    );
    this.close();
    return again(this.#error);
  }

  // -- the wire's side --

  #begin(asOf, number = null) {
    const { atomic, upTo, slow } = this.#options;
    this.#merging = new Merging(this.partitions, atomic, upTo);
    const spec = { kind: "topic", topic: this.topic, id: this.#found.id, partitions: this.partitions, policy: slow };
    if (asOf !== null) spec.as_of = asOf;
    this.#skipped = [0, 0];
    this.#came = this.#taken = this.#takenBytes = 0;
    for (const [, items, bytes] of this.#inbox) {
      this.#taken -= items; // what is held of the connection before counts against the credit
      this.#takenBytes -= bytes;
    }
    this.#asked = Math.max(1, this.#taken + ASKED);
    this.#askedBytes = Math.max(1, this.#takenBytes + ASKED_BYTES);
    this.#stream = this.#session.openStream(this, spec, this.#asked, this.#askedBytes, number);
  }

  /** Goes on where it was after a lost connection; the daemon refuses if that is not retained. */
  reopen(number) {
    if (this.#over) return;
    if (this.#reached === null) {
      const { asOf } = this.#options;
      this.#begin(asOf === null ? null : this.#times(asOf), number);
    } else if (!this.#reached.length) {
      this.ended(); // only the end of the stream has not come
    } else if (!this.#found.retain) {
      const times = JSON.stringify(this.#reached);
      const missing = `what topic ${this.topic} sent since ${times} is missing: it retains nothing`;
      this.fail(new Broken(`the connection was lost, and ${missing}`));
    } else {
      this.#skip = new Map([...this.#delivered].map(([at, { count }]) => [at, count]));
      this.#begin(this.#reached, number);
    }
  }

  reach() {} // a topic has frontiers instead of epochs of the space

  arrive(first, values, bytes) {
    if (first !== this.#came) throw new ProtocolError("unexpected", `stream ${this.#stream}: values from ${first}`);
    this.#came += values.length;
    values.forEach((value, at) => {
      this.#skipped[0]++;
      if (at === values.length - 1) this.#skipped[1] += bytes;
      const kept = this.#merging.take(value).filter((event) => this.#isNew(event)).map(decoded);
      kept.forEach((event, place) => {
        const [items, size] = place === kept.length - 1 ? this.#skipped : [0, 0];
        this.#inbox.push([event, items, size]);
      });
      if (kept.length) this.#skipped = [0, 0];
    });
    if (this.#skipped[0] && !this.#inbox.length) {
      this.#took(...this.#skipped); // a reader does not take out what was filtered
      this.#skipped = [0, 0];
    }
    if (this.#merging.ended) this.#abort();
    if (this.#delivered.size * OVERHEAD > this.#options.openBytes && !this.#over) {
      this.#overfull(`${this.#delivered.size} epochs`);
    }
    this.#wake();
  }

  /** True for what was not delivered before the connection was lost; counts the batches of open epochs. */
  #isNew(event) {
    if (event.type === "batch") {
      const at = key([event.partition, event.time]);
      const repeated = this.#skip.get(at) ?? 0;
      if (repeated > 0) {
        this.#skip.set(at, repeated - 1);
        return false;
      }
      const count = (this.#delivered.get(at)?.count ?? 0) + 1;
      this.#delivered.set(at, { time: event.time, count });
    } else if (event.type === "frontier") {
      this.#reached = event.times;
      for (const [at, { time }] of this.#delivered) if (!reaches(event.times, time)) this.#delivered.delete(at);
    }
    return true;
  }

  #took(items, bytes) {
    this.#taken += items;
    this.#takenBytes += bytes;
    const due = this.#asked - this.#taken < ASKED / 2 || this.#askedBytes - this.#takenBytes < ASKED_BYTES / 2;
    if (!due || this.#over) return;
    this.#asked = this.#taken + ASKED;
    this.#askedBytes = this.#takenBytes + ASKED_BYTES;
    this.#session.send([ASK, this.#stream, this.#asked, this.#askedBytes]);
  }

  ended() {
    this.#over = true;
    this.#wake();
  }

  fail(error) {
    this.#over = true;
    this.#error = error;
    this.#wake();
  }

  #abort() {
    if (!this.#over && this.#stream !== null) this.#session.dropStream(this.#stream, this);
    this.#over = true;
    this.#wake();
  }

  #wake() {
    this.#arrival.resolve();
    this.#arrival = new Deferred();
  }
}

function decoded(event) {
  if (event.type !== "batch") return event;
  const items = unpack(event.items);
  if (!Array.isArray(items)) throw new ProtocolError("malformed", "the items of a batch are an array");
  return { ...event, items, bytes: event.items.length };
}
