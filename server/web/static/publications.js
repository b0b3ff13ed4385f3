/**
 * Publishing to topics: one producer in one partition, which sends items at times for which it holds a capability.
 *
 * Always: what is sent keeps its order; a publication whose connection is lost has crashed, and subscribers are
 * notified, unless it may be *away*: then what was not answered is sent again, and counts once.
 */

import { again, AnotherSpace, Broken, optionsOf, Refused, UsageError } from "./errors.js";
import { compare, Float } from "./values.js";
import { pack } from "./packing.js";
import { Deferred } from "./packets.js";
import { Counts, lessEqual, reaches } from "./frontiers.js";
import { randomHex } from "./text.js";

const SEND = 0;
const CHANGE = 1;
const LEAVE = 2;
const CRASH = 3;
const FINISH = 5;

const WINDOW = 256 << 10;
const NUMBERS = 32;
const SPARE = 4096;

const OPTIONS = {
  partition: 0,
  partitions: 1,
  dimensions: 0,
  time: null,
  retain: 0,
  durable: false,
  age: null,
  name: "",
  away: 0,
};

/** The right to send at `time` and later: while it is held, those times are complete for no subscriber. */
export class Capability {
  #publication;

  constructor(publication, time) {
    this.#publication = publication;
    this.time = time;
  }

  /** Gives up what lies before a later time. */
  async downgrade(time) {
    await this.#publication.room();
    if (this.time === null || !lessEqual(this.time, time)) {
      throw new UsageError(`a capability for ${shown(this.time)} cannot be downgraded to ${shown(time)}`);
    }
    const before = this.time;
    this.time = time;
    if (compare(before, time)) this.#publication.change([[before, -1], [time, 1]]);
  }

  /** Gives it up; nothing happens if it was released. */
  async release() {
    await this.#publication.room();
    const before = this.time;
    this.time = null;
    if (before !== null) this.#publication.change([[before, -1]]);
  }
}

/**
 * One producer; made by `space.publish`. It begins with one capability, at `time`, which `advance` downgrades.
 *
 * A call returns when its step is on its way, and waits only while too much is unanswered.
 */
export class Publication {
  #session;
  #asked;
  #producer = 0;
  #main;
  #held = new Counts();
  #unanswered = [];
  #size = 0;
  #taken = 0;
  #there = true;
  #over = false;
  #error = null;

  constructor(session, topic, options) {
    const asked = optionsOf(OPTIONS, options);
    if ((asked.name || asked.away) && !asked.durable) {
      throw new UsageError("only a publication to a durable topic has a name and may be away");
    }
    this.topic = topic;
    this.partition = asked.partition;
    /** The name by which another connection resumes it while it is away. */
    this.name = asked.name || (asked.away ? randomHex(16) : "");
    /** Further capabilities of one that was taken up by its name, beside the first. */
    this.capabilities = [];
    this.#session = session;
    this.#asked = asked;
  }

  /** The time of the first capability; null once it is released. */
  get time() {
    return this.#main.time;
  }

  #request(back) {
    const { partition, partitions, dimensions, retain, durable, age, away, time } = this.#asked;
    const request = { topic: this.topic, partition, partitions, dimensions, retain };
    if (durable) Object.assign(request, { durable, name: this.name, away: Math.round(away), back });
    if (durable && age !== null) request.age = new Float(age);
    if (time !== null) request.time = time;
    return request;
  }

  /** Joins the topic, which is made if there is none; or takes up the producer of this name. */
  async join() {
    const { producer, held, taken } = await this.#session.request("join", this.#request(false));
    this.#producer = producer;
    this.#taken = taken;
    this.#held.change(held);
    const capabilities = held.flatMap(([time, count]) =>
      Array.from({ length: count }, () => new Capability(this, time)),
    );
    this.#main = capabilities.shift() ?? new Capability(this, null);
    this.capabilities = capabilities;
    this.#session.lasting.add(this);
    return this;
  }

  /** Sends items, which stay together and in order, at a time: by default that of the first capability. */
  async send(items, options = {}) {
    const { at } = optionsOf({ at: null }, options);
    const packed = this.#packed(items);
    await this.room();
    const time = at ?? this.time;
    this.#check(time);
    this.#say([SEND, time, packed]);
  }

  /** Sends items at the time of the first capability and downgrades that, as one step: all of it happens, or nothing. */
  async finish(items, then) {
    const packed = this.#packed(items);
    await this.room();
    const { time } = this;
    if (time === null || !compare(time, then) || !lessEqual(time, then)) {
      throw new UsageError(`an epoch at ${shown(time)} cannot be finished by going on at ${shown(then)}`);
    }
    const changes = [[time, -1], [then, 1]];
    this.#main.time = then;
    this.#held.change(changes);
    this.#say([FINISH, time, packed, changes]);
  }

  /** Moves the first capability to a later time: what is before it is complete, as far as this producer goes. */
  advance(time) {
    return this.#main.downgrade(time);
  }

  /** Returns one more capability, at or after one that is held. */
  async hold(time) {
    await this.room();
    this.#check(time);
    this.change([[time, 1]]);
    return new Capability(this, time);
  }

  /** Releases the first capability. */
  release() {
    return this.#main.release();
  }

  /** Waits until the daemon has taken all that was sent; throws what it refused. */
  async flush() {
    while (this.#unanswered.length) await this.#answered();
    if (this.#error) throw again(this.#error);
  }

  /** Releases everything and leaves, once the daemon has taken all that was sent. */
  async close() {
    if (!this.#over) {
      this.#say([LEAVE]);
      this.#over = true;
    }
    await this.flush();
    this.#session.lasting.delete(this);
  }

  /** Leaves with times open: subscribers are told that these may be incomplete, and why. */
  crash(reason) {
    if (this.#over) return;
    this.#over = true;
    this.#session.lasting.delete(this);
    if (this.#session.up) this.#session.produce(this.#producer, [CRASH, String(reason).slice(0, 1000)]);
  }

  #check(time) {
    if (time === null || !reaches(this.#held.times, time)) {
      throw new UsageError(`no capability for time ${shown(time)}, held are ${shown(this.#held.times)}`);
    }
  }

  #packed(items) {
    if (!Array.isArray(items)) throw new UsageError("items are an array: send([item])");
    const packed = pack(items);
    const most = this.#session.inFlight.limits.frame_bytes - SPARE;
    if (packed.length > most) {
      throw new Refused("limit", `items of ${packed.length} bytes, limit ${most}; send them in several calls`);
    }
    return packed;
  }

  /** Changes what is held; comes after `room`. */
  change(changes) {
    this.#held.change(changes);
    this.#say([CHANGE, changes]);
  }

  /** Waits until a step may be said; comes before anything is changed for it. */
  async room() {
    this.#checkOpen();
    while (this.#unanswered.length && this.#size > WINDOW) await this.#answered();
    this.#checkOpen();
  }

  #checkOpen() {
    if (this.#error) throw again(this.#error);
    if (this.#over) throw new UsageError(`this publication to ${this.topic} has ended`);
  }

  #say(step) {
    const sent = { step, size: pack(step).length + NUMBERS, answer: new Deferred(), settled: false };
    sent.answer.promise.catch(() => {}); // the next call throws it
    this.#unanswered.push(sent);
    this.#size += sent.size;
    if (this.#there && this.#session.up) this.#produce(sent);
  }

  #produce(sent) {
    this.#session.produce(this.#producer, sent.step).promise.then(
      () => this.#settle(sent),
      (error) => {
        if (error instanceof Broken && this.#asked.away) return; // it is sent again
        this.#settle(sent, error);
        if (error instanceof Broken) return;
        this.#error ??= error; // the next call throws it, and nothing is sent any more
        this.#over ||= Boolean(this.#asked.away);
      },
    );
  }

  #settle(sent, error) {
    if (sent.settled) return;
    sent.settled = true;
    if (error) sent.answer.reject(error);
    else sent.answer.resolve();
  }

  async #answered() {
    const [sent] = this.#unanswered;
    try {
      await sent.answer.promise;
    } catch (error) {
      this.#over = true;
      this.#session.lasting.delete(this);
      throw again(error);
    }
    if (this.#unanswered[0] === sent) this.#shift(); // several calls may wait
  }

  #shift() {
    this.#size -= this.#unanswered.shift().size;
    this.#taken++;
  }

  // -- coming back --

  /** Called on a new connection: has crashed with the old one, or requests how far it came; until then nothing is sent. */
  async reconnected(moved) {
    const lost = `the publication to ${this.topic} was lost with its connection`;
    if (moved) return this.fail(new AnotherSpace(`${lost}: the connection is to another space now`));
    if (!this.#asked.away) return this.fail(new Broken(lost));
    if (this.#error) return this.fail(this.#error); // steps behind the refused one would be sent as if it had been taken
    this.#there = false;
    while (this.#unanswered[0]?.settled) this.#shift();
    try {
      this.#returned(await this.#session.ask("join", this.#request(true)).promise);
    } catch (error) {
      if (!(error instanceof Broken)) this.fail(error); // else there will be another connection
    }
    return undefined;
  }

  #returned({ taken, producer }) {
    const ended = producer === null; // a step that ends it is not counted, but was taken as well then
    for (const sent of this.#unanswered.slice(0, taken - this.#taken + Number(ended))) this.#settle(sent);
    this.#there = true;
    if (ended) return;
    this.#producer = producer;
    for (const sent of this.#unanswered) if (!sent.settled) this.#produce(sent);
  }

  /** Ends it: it has crashed, or there will be no further connection. */
  fail(error) {
    this.#over = true;
    this.#error = error;
    this.#session.lasting.delete(this);
    for (const sent of this.#unanswered) this.#settle(sent, error);
  }
}

const shown = (time) => JSON.stringify(time);
