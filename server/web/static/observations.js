/** Observations: the whole epochs of a pattern, within credit, over one connection after another. */

import { again, optionsOf, ProtocolError, Refused, UsageError } from "./errors.js";
import { captureNames } from "./patterns.js";
import { Record } from "./values.js";
import { parse } from "./text.js";
import { ASK, CONFLATED, Deferred, MORE, PROGRESS, STATE } from "./packets.js";
import { RowKey, RowTable } from "./tables.js";

/** The changes of one epoch, as one pattern saw them: rows of captures. */
export class Epoch {
  constructor(number, micros, flags, added, messages, removed, first, lost = 0) {
    this.number = number;
    this.micros = micros;
    this.flags = flags;
    this.added = added;
    this.messages = messages;
    this.removed = removed;
    this.first = first;
    this.lost = lost;
    /** With the option `parts`: false for the parts after the first. */
    this.begins = true;
    /** With the option `by`: beside each row of `added` the row of the same key that it replaces, or null. */
    this.replaces = null;
    /** With the option `by`: beside each row of `removed` the row by which it is replaced, or null. */
    this.replacedBy = null;
  }

  /** When it was committed, to the millisecond; `micros` has microseconds since 1970 UTC. */
  get time() {
    return new Date(Math.floor(this.micros / 1000));
  }

  /** True if `added` is the state, and not what has changed. */
  get state() {
    return (this.flags & STATE) !== 0;
  }

  /** True if this is the net difference over the epochs from `first` to `number`. */
  get conflated() {
    return (this.flags & CONFLATED) !== 0;
  }

  /** True if nothing has changed, and all changes up to `number` have come. */
  get progress() {
    return (this.flags & PROGRESS) !== 0;
  }

  /** True if the epoch goes on with the next one that is read, as with the option `parts`. */
  get more() {
    return (this.flags & MORE) !== 0;
  }
}

/** Returns the epoch of one value of a stream, which may be a part of one, or a mark. */
function epochOf(value) {
  if (value instanceof Record && value.label === "lost" && value.fields.length === 3) {
    const [changes, first, last] = value.fields;
    return new Epoch(last, 0, 0, [], [], [], first, changes);
  }
  if (!Array.isArray(value) || value.length < 7 || !Array.isArray(value[3])) {
    throw new ProtocolError("malformed", "a value of an observation that is no epoch");
  }
  return new Epoch(...value.slice(0, 7));
}

/** Appends without spreading: an epoch may have more rows than a function takes arguments. */
function append(list, more) {
  for (const each of more) list.push(each);
}

const BUDGET = 64 << 20;
const WINDOW = 1 << 20;
const LEAST = 4 << 10;
const ITEM = 64;

const RESTARTS = new Set(["epoch-gone", "epoch-lost", "epoch-ahead"]);

const OPTIONS = {
  by: null,
  snapshot: true,
  after: null,
  asOf: null,
  upto: null,
  identity: "",
  durable: false,
  quiet: false,
  net: false,
  policy: "conflate",
  progress: false,
  pace: 0,
  parts: false,
  window: null,
};

/**
 * The whole epochs of one pattern: `for await (const epoch of observation)`. Leaving the loop ends it.
 *
 * By default the first epoch is the state. After a lost connection it goes on after the last epoch that came.
 */
export class Observation {
  #session;
  #options;
  #number = null;
  #queue = [];
  #readers = [];
  #costs = [];
  #part = null;
  #partItems = 0;
  #partBytes = 0;
  #key = null;
  #table;
  #follower;
  #newest;
  #reached = null;
  #since = 0;
  #restated = false;
  #catchingUp = false;
  #over = false;
  #error = null;
  #came = 0;
  #cameBytes = 0;
  #taken = 0;
  #takenBytes = 0;
  #asked = 0;
  #askedBytes = 0;

  /**
   * A live map passes itself as the `follower`, with its own table: epochs are applied to it as they arrive, and none is kept to be read.
   */
  constructor(session, pattern, options, follower = null) {
    this.pattern = typeof pattern === "string" ? parse(pattern) : pattern;
    /** The names of the captures, in the order of the rows. */
    this.names = captureNames(this.pattern);
    this.#session = session;
    this.#options = optionsOf(OPTIONS, options);
    const { by, parts, after } = this.#options;
    if (by !== null) this.#key = new RowKey(this.names, by);
    if (this.#key && parts) throw new UsageError("by pairs the rows of a whole epoch, and with parts none is whole here");
    this.#follower = follower;
    this.#table = follower?.table ?? new RowTable();
    this.#newest = after;
    this.#open(null, false);
  }

  // -- the application's side --

  /** Returns the next whole epoch, or `undefined` when the observation is complete. */
  async read() {
    const { value } = await this.next();
    return value;
  }

  next() {
    if (this.#queue.length) return Promise.resolve({ value: this.#pop(), done: false });
    if (this.#over) return this.#last();
    const reader = new Deferred();
    this.#readers.push(reader);
    return reader.promise;
  }

  /** Ends the observation without waiting. */
  close() {
    this.#finish();
    this.#queue.length = this.#costs.length = 0;
  }

  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** How many epochs and bytes have come and are not read yet; the credit bounds them. */
  get waiting() {
    return { epochs: this.#queue.length, bytes: this.#cameBytes - this.#takenBytes };
  }

  #pop() {
    const [items, bytes] = this.#costs.shift();
    this.#taken += items;
    this.#takenBytes += bytes;
    this.#want();
    return this.#queue.shift();
  }

  #last() {
    const error = this.#error;
    this.#error = null;
    return error ? Promise.reject(again(error)) : Promise.resolve({ value: undefined, done: true });
  }

  #serve() {
    while (this.#readers.length && this.#queue.length) {
      this.#readers.shift().resolve({ value: this.#pop(), done: false });
    }
    while (this.#over && this.#readers.length) this.#last().then(...settlers(this.#readers.shift()));
  }

  #finish(error = null) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    this.#session.dropStream(this.#number, this);
    if (this.#follower) this.#follower.over(error);
    else this.#table.clear();
    this.#serve();
  }

  // -- credit --

  get #limits() {
    const bytes = Math.max(LEAST, Math.min(WINDOW, Math.floor(BUDGET / Math.max(1, this.#session.streams.size))));
    return [this.#options.window ?? Math.max(1, Math.floor(bytes / ITEM)), bytes];
  }

  /** Requests a whole window beyond what is read, when half of it is used up. */
  #want() {
    const [items, bytes] = this.#limits;
    const taken = this.#taken + this.#partItems; // parts of an epoch cannot be read before the last has come
    const takenBytes = this.#takenBytes + this.#partBytes;
    const due = this.#asked - taken <= items / 2 || this.#askedBytes - takenBytes <= bytes / 2;
    if (!due || this.#over) return;
    this.#asked = Math.max(this.#asked, taken + items);
    this.#askedBytes = Math.max(this.#askedBytes, takenBytes + bytes);
    this.#session.sendOn([ASK, this.#number, this.#asked, this.#askedBytes]);
  }

  // -- the wire's side --

  /** Opens the stream, or opens it again under its number, after the last epoch that came. */
  #open(number, net) {
    const [items, bytes] = this.#limits;
    this.#part = null;
    this.#partItems = this.#partBytes = this.#came = this.#cameBytes = 0;
    this.#taken = this.#takenBytes = 0; // what is held of the connection before counts against the credit
    for (const [heldItems, heldBytes] of this.#costs) {
      this.#taken -= heldItems;
      this.#takenBytes -= heldBytes;
    }
    this.#asked = Math.max(1, this.#taken + items);
    this.#askedBytes = Math.max(1, this.#takenBytes + bytes);
    this.#number = this.#session.openStream(this, this.#spec(net), this.#asked, this.#askedBytes, number);
  }

  #spec(net) {
    const options = this.#options;
    const newest = this.#told;
    const spec = { kind: "observe", pattern: this.pattern };
    if (newest !== null) {
      spec.after = newest;
      if (net || (options.net && newest === options.after)) spec.net = true;
    } else {
      if (!(options.snapshot || this.#restated)) spec.snapshot = false;
      if (options.asOf !== null && !this.#restated) spec.as_of = options.asOf;
    }
    if (options.upto !== null) spec.upto = options.upto;
    const isFirst = newest === options.after && !this.#restated; // later epochs have come over this connection
    if (options.identity && isFirst) spec.identity = options.identity;
    for (const name of ["durable", "quiet", "progress"]) if (options[name]) spec[name] = true;
    if (options.policy !== "conflate") spec.policy = options.policy;
    if (options.pace) spec.pace = Math.ceil(options.pace);
    return spec;
  }

  /** The epoch up to which all changes are here; null before the first. */
  get #told() {
    if (this.#newest === null || this.#reached === null) return this.#newest ?? this.#reached;
    return Math.max(this.#newest, this.#reached);
  }

  /** The newest epoch that has come; 0 before the first. */
  get seen() {
    const told = this.#told;
    return told === null || told === this.#options.after ? 0 : told;
  }

  /** True if it begins with the state, or has begun with it anew, and does not read the past. */
  get #followsState() {
    const { after, asOf, snapshot, upto, durable } = this.#options;
    const past = after !== null || (asOf !== null && !this.#restated);
    return (snapshot || this.#restated) && !past && upto === null && !durable;
  }

  /** Called when the client has reconnected. */
  reopen(number, resumed, moved) {
    if (this.#over) return;
    if (moved) this.#follower?.moved();
    const { after, asOf, upto } = this.#options;
    const isPast = after !== null || asOf !== null || upto !== null;
    if (moved && isPast && this.#newest === after && !this.#restated) {
      const text = "its epochs are of another space than the connection is to now";
      return this.fail(new Refused("epoch-lost", text));
    }
    if (moved && this.#newest !== this.#options.after) this.#catchUp();
    else if (moved) this.#reached = null;
    const isNet = this.#options.pace > 0 || !resumed; // who wants few states needs no state of meanwhile
    this.#open(number, this.#options.policy === "conflate" && this.#followsState && isNet);
  }

  /** Has the stream opened with the state, of which only the difference to what is known will be shown. */
  #catchUp() {
    this.#since = this.#told ?? 0;
    this.#newest = this.#reached = null;
    this.#restated = true;
    this.#catchingUp = !this.#options.parts; // what is told in parts is not known here
  }

  arrive(first, values, bytes) {
    if (first !== this.#came || this.#came + values.length > this.#asked || this.#cameBytes >= this.#askedBytes) {
      throw new ProtocolError("unexpected", `stream ${this.#number}: values from ${first} that were not asked for`);
    }
    this.#came += values.length;
    this.#cameBytes += bytes;
    this.#partBytes += bytes;
    for (const value of values) {
      this.#partItems++;
      this.#assemble(epochOf(value));
      if (this.#over) return; // by whom a live map has told
    }
    this.#serve();
    if (this.#partItems || this.#follower) this.#want();
  }

  /** Puts the parts of an epoch together: a reader never gets less than all of it. */
  #assemble(epoch) {
    if (this.#options.parts) return this.#passOn(epoch);
    if (this.#part) {
      append(this.#part.added, epoch.added);
      append(this.#part.messages, epoch.messages);
      append(this.#part.removed, epoch.removed);
      this.#part.flags = epoch.flags;
      epoch = this.#part;
    }
    this.#part = epoch.flags & MORE ? epoch : null;
    if (this.#part) return;
    if (this.#catchingUp) epoch = this.#difference(epoch);
    this.#key?.pair(epoch);
    const isChange = this.#table.apply(epoch);
    this.#newest = epoch.number;
    if (this.#follower) this.#follow(epoch.number, isChange);
    else this.#enqueue(epoch);
  }

  /** Has a live map, which has the epoch by now, say so; nothing of the epoch waits to be read. */
  #follow(number, isChange) {
    this.#taken += this.#partItems;
    this.#takenBytes += this.#partBytes;
    this.#partItems = this.#partBytes = 0;
    this.#follower.applied(number, isChange);
  }

  /** Has a part of an epoch read as it is; what was not whole when the connection was lost begins anew. */
  #passOn(epoch) {
    epoch.begins = !this.#part;
    this.#part = epoch.more ? epoch : null;
    if (!this.#part) this.#newest = epoch.number;
    this.#enqueue(epoch);
  }

  #enqueue(epoch) {
    this.#queue.push(epoch);
    this.#costs.push([this.#partItems, this.#partBytes]);
    this.#partItems = this.#partBytes = 0;
  }

  /** Returns the changes that lead from the known state to this one. */
  #difference(state) {
    this.#catchingUp = false;
    const { added, removed } = this.#table.difference(state.added);
    const first = Math.min(this.#since + 1, state.number);
    return new Epoch(state.number, state.micros, CONFLATED, added, [], removed, first);
  }

  reach(epoch) {
    this.#reached = epoch;
    this.#follower?.reached(epoch);
  }

  ended() {
    this.#finish();
  }

  fail(error) {
    const newer = this.#newest !== this.#options.after;
    const skips = ["conflate", "drop"].includes(this.#options.policy) && this.#followsState;
    if (error instanceof Refused && RESTARTS.has(error.code) && newer && skips && this.#session.isOpen) {
      this.#catchUp();
      this.#open(null, false);
    } else {
      this.#finish(error);
    }
  }
}

const settlers = (deferred) => [deferred.resolve, deferred.reject];
