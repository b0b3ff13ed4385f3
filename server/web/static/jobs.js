/**
 * Jobs: what a program gets as a member of a group, which divides a stream of work among its members.
 *
 * A job is settled once: done, given back, or dead. After a lost connection the daemon is told which jobs the program still
 * has, and says which of them it keeps.
 *
 * Always: a job that is not settled is given to another member in the end; a lost job is never reported as done.
 */

import { again, Broken, DeliveryLost, noOptions, optionsOf, ProtocolError, Unreachable, UsageError } from "./errors.js";
import { captureNames } from "./patterns.js";
import { ASK, Deferred } from "./packets.js";
import { formOf } from "./puts.js";
import { checkOpen, inTurn, JobReports, JobsMember, lostOf, outcomeOf } from "./reports.js";
import { equal, Time } from "./values.js";

const AHEAD = 64; // marks beside the deliveries
const BYTES = 2 ** 50; // `inFlight` is the bound of a member instead
const LONGEST_MILLIS = 43_200_000;
const REASON = 500;
const MOST_CHANGES = 4096;

const OPTIONS = {
  group: "",
  start: "now",
  inFlight: 1,
  key: null,
  ackWithin: null,
  attempts: null,
  quiet: false,
  topic: null,
  mostOut: null,
  backoff: null,
  rate: null,
  exclusive: null,
  kinds: null,
  priority: null,
};
const AGAIN = { after: 0, blame: true, reason: "" };
const RUN = { tasks: 1 };

/** One item that is out to this member. */
export class Job {
  /** True once the delivery is no longer this member's. */
  lost = false;
  /** True once the fact has gone meanwhile; to report the job as done still counts. */
  gone = false;
  /** True once the job is done, given back or dead, or that is being sent. */
  settled = false;
  /** True while the request that settles it waits to be sent. */
  queued = false;
  /** True while the request that settles it has no answer: the daemon may not know of it. */
  asked = false;

  constructor(jobs, names, [epoch, position, micros, token, attempt, kind, captures]) {
    this.jobs = jobs;
    this.names = names;
    this.epoch = epoch;
    this.position = position;
    this.micros = micros;
    this.token = token;
    this.attempt = attempt;
    this.isEnding = kind === "ending";
    this.isMessage = kind !== "fact" && !this.isEnding;
    [, this.topicTime = null, this.crashed = ""] = Array.isArray(kind) ? kind : [];
    this.captures = captures;
  }

  /** The group, the epoch and the position of the item: the same in every attempt. */
  get id() {
    return [this.jobs.group, this.epoch, this.position];
  }

  /** When the fact appeared, or the message was sent, to the millisecond. */
  get time() {
    return new Date(Math.floor(this.micros / 1000));
  }

  /** The captures by name; unnamed ones by their position among all. */
  get named() {
    return Object.fromEntries(this.names.map((name, at) => [name, this.captures[at]]));
  }

  /**
   * Reports the job as done; returns, once that is on disk, the epoch up to which it holds.
   *
   * Jobs that are done at once, or while two reports have no answer yet, share a turn.
   */
  async done(...more) {
    noOptions(more);
    return this.jobs.done(this);
  }

  /** Gives the job back, for any member after so many milliseconds; the attempt has failed unless `blame` is false. */
  async again(options = {}) {
    const { after, blame, reason } = optionsOf(AGAIN, options);
    if (!(after >= 0 && after <= LONGEST_MILLIS)) {
      throw new UsageError(`after is 0 to ${LONGEST_MILLIS} milliseconds, not ${after}`);
    }
    return this.jobs.settle(this, "again", reason, { after: after / 1000, blame });
  }

  /** Makes the job a dead letter: `dead(GROUP, EPOCH, POSITION, ITEM, REASON, ATTEMPTS)`. */
  async dead(reason = "", ...more) {
    noOptions(more);
    return this.jobs.settle(this, "dead", reason);
  }

  /**
   * Returns the owner that asserted the fact, or all that ended it, as the log has them; empty for messages and items of
   * topics. It is a request, which needs the right to inspect.
   */
  async cause(...more) {
    noOptions(more);
    return this.jobs.cause(this);
  }

  /** Begins the deadline of the job anew. */
  async extend(...more) {
    noOptions(more);
    return this.jobs.extend(this);
  }

  get member() {
    return this.jobs.member;
  }

  get group() {
    return this.jobs.group;
  }

  /** The delivery as the wire names it. */
  get cell() {
    return [this.epoch, this.position, this.token];
  }
}

/** A member of a group: `for await (const job of jobs)`. Leaving the loop leaves the group, and gives back what is not settled. */
export class Jobs {
  #session;
  #spec;
  #number = null;
  #pattern = null;
  #names = [];
  #inbox = []; // jobs that the program has not taken, null for each mark between them
  #reports;
  #readers = [];
  #joins = new Deferred(); // settles when this joins again
  #over = false;
  #error = null;
  #taken = 0;
  #came = 0;
  #asked = 0;

  constructor(session, pattern, options) {
    const { group, start, inFlight, key, ackWithin, attempts, quiet, topic, mostOut, backoff, rate, exclusive, kinds, priority } =
      optionsOf(OPTIONS, options);
    if (typeof group !== "string" || !group) throw new UsageError("the option `group` names the group");
    if (!(Number.isSafeInteger(inFlight) && inFlight > 0)) throw new UsageError(`inFlight is 1 or more, not ${inFlight}`);
    this.group = group;
    /** Milliseconds in which a job must be settled, or extended; 0 until it is known. */
    this.ackWithin = 0;
    this.inFlight = inFlight;
    this.#session = session;
    this.member = new JobsMember(session);
    this.#reports = new JobReports(this.member);
    this.#begin();
    const spec = { kind: "consume", group };
    if (pattern !== null && pattern !== undefined) spec.pattern = formOf(pattern);
    if (start !== "now") spec.begin = start instanceof Date ? Time.of(start) : start;
    if (inFlight !== 1) spec.in_flight = inFlight;
    if (key !== null) spec.key = key;
    if (ackWithin !== null) spec.ack_within = ackWithin / 1000;
    if (attempts !== null) spec.attempts = attempts;
    if (quiet) spec.quiet = true;
    if (topic !== null) spec.topic = topic;
    if (mostOut !== null) spec.most_out = mostOut;
    if (backoff !== null) spec.backoff = Array.isArray(backoff) ? backoff.map((wait) => wait / 1000) : backoff / 1000;
    if (rate !== null) spec.rate = rate;
    if (exclusive !== null) spec.exclusive = exclusive;
    if (kinds !== null) spec.kinds = kinds;
    if (priority !== null) spec.priority = priority;
    this.#spec = spec;
    this.#open([]);
  }

  // -- the program's side --

  /** Settles once this is a member of the group; throws `Refused` where that cannot be. */
  get ready() {
    return this.member.held.promise.then(() => this);
  }

  /** Returns the next job, or `undefined` once this has ended. */
  async take() {
    const { value } = await this.next();
    return value;
  }

  next() {
    this.#skipMarks();
    if (this.#inbox.length) return Promise.resolve({ value: this.#pop(), done: false });
    if (this.#over) return this.#last();
    const reader = new Deferred();
    this.#readers.push(reader);
    return reader.promise;
  }

  /** Leaves the group without waiting; jobs that are not settled are given back. */
  close() {
    this.#finish();
  }

  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** How many jobs have come that the program has not taken. */
  get waiting() {
    return this.#inbox.filter((job) => job && !job.lost).length;
  }

  /**
   * Calls a function for each job, at most so many at once, until this ends.
   *
   * A job is done when the function returns, and given back when it throws.
   */
  async run(work, options = {}) {
    const { tasks } = optionsOf(RUN, options);
    await Promise.all(Array.from({ length: tasks }, () => this.#work(work)));
  }

  async #work(work) {
    for (let job = await this.take(); job; job = await this.take()) {
      let settle = () => job.done();
      try {
        await work(job);
      } catch (error) {
        settle = () => job.again({ reason: String(error).slice(0, REASON) });
      }
      if (job.settled || job.lost) continue;
      await settle().catch((error) => {
        if (!(error instanceof DeliveryLost || error instanceof Unreachable)) throw error;
      });
    }
  }

  /** Reports jobs as done: several in one turn, of which all are done or none. */
  async done(...jobs) {
    if (jobs.length !== 1 || jobs[0]?.member !== this.member) return inTurn(this.#session, jobs);
    if (!this.member.isHeld) await this.member.held.promise;
    checkOpen(jobs);
    return this.#reports.done(jobs[0]);
  }

  /** Gives a job back (`again`), or makes it a dead letter (`dead`). */
  async settle(job, verb, reason, more = {}) {
    await this.member.held.promise;
    checkOpen([job]);
    job.settled = job.asked = true;
    const said = { group: this.group, reason: String(reason).slice(0, REASON), ...more };
    await outcomeOf([job], this.#settle(job, verb, said));
  }

  /**
   * Sends the request until it is answered; a reconnect says whether it has happened.
   *
   * A delivery that this member has kept was not settled. One that it has not kept is settled, or lost: given back in any
   * case, so only what makes a dead letter is in doubt.
   */
  async #settle(job, verb, said) {
    for (let unclear = false; ; ) {
      const era = this.member.era;
      try {
        return await this.#session.request("settle", { ...said, [verb]: [job.cell] });
      } catch (error) {
        unclear ||= error instanceof Broken;
        await this.#joinedSince(era, error);
      }
      if (this.member.out.get(job.token) === job) continue;
      if (unclear && verb === "again") return undefined;
      throw lostOf(job);
    }
  }

  /** Begins the deadlines of jobs anew. */
  async extend(...jobs) {
    for (;;) {
      await this.member.held.promise;
      checkOpen(jobs);
      const era = this.member.era;
      try {
        await this.#session.request("settle", { group: this.group, extend: jobs.map((job) => job.cell) });
        return;
      } catch (error) {
        await this.#joinedSince(era, error);
      }
    }
  }

  /** Returns whose fact a job is, or who ended it. */
  async cause(job) {
    if (job.isMessage) return [];
    await this.member.held.promise;
    const asked = { pattern: this.#pattern, after: job.epoch - 1, upto: job.epoch, most: MOST_CHANGES };
    const { changes } = await this.#session.request("who", asked);
    const kind = job.isEnding ? "-" : "+";
    const mine = changes.filter((each) => each.change === kind && equal(each.captures, job.captures));
    return [...new Set(mine.flatMap((each) => each.owners))];
  }

  /** Waits until this has joined again after a failure; throws that if a reconnect does not explain it. */
  async #joinedSince(era, error) {
    if (!(error instanceof Broken && this.#session.isOpen) && !(error instanceof DeliveryLost && this.member.era > era)) throw error;
    while (this.member.era === era && !this.#over) await this.#session.patience.wait(this.#joins.promise);
    await this.member.held.promise;
  }

  #pop() {
    const job = this.#inbox.shift();
    this.member.out.set(job.token, job);
    this.#taken++;
    this.#skipMarks();
    this.#ask();
    return job;
  }

  #last() {
    return this.#error ? Promise.reject(again(this.#error)) : Promise.resolve({ value: undefined, done: true });
  }

  #serve() {
    while (this.#readers.length && this.#inbox.length) this.#readers.shift().resolve({ value: this.#pop(), done: false });
    while (this.#over && this.#readers.length) {
      const reader = this.#readers.shift();
      this.#last().then(reader.resolve, reader.reject);
    }
  }

  #finish(error = null) {
    if (this.#over) return;
    this.#over = true;
    this.#error = error;
    if (!error) this.#reports.flush(); // before the daemon hears of the end
    this.#session.dropStream(this.#number, this);
    for (const job of this.member.out.values()) job.lost ||= !job.settled;
    this.member.out.clear();
    this.#inbox.length = 0;
    this.#joins.resolve();
    if (error) this.member.held.reject(again(error));
    else this.member.held.resolve();
    this.#serve();
  }

  // -- the wire's side --

  #begin() {
    this.member.era++;
    this.member.isHeld = false;
    this.#joins.resolve();
    this.#joins = new Deferred();
    this.member.held = new Deferred();
    this.member.held.promise.catch(() => {}); // of those that nothing awaits
  }

  #open(holding, number = null) {
    this.#taken = this.#came = 0;
    this.#inbox.length = 0;
    this.#asked = this.inFlight + AHEAD;
    const spec = holding.length ? { ...this.#spec, holding } : this.#spec;
    this.#number = this.#session.openStream(this, spec, this.#asked, BYTES, number);
  }

  /** Tells the daemon what the program has taken: the deadlines of those begin. */
  #ask() {
    if (this.#over) return;
    this.#asked = this.#taken + this.inFlight + AHEAD;
    this.#session.sendOn([ASK, this.#number, this.#asked, BYTES]);
  }

  /** Passes over marks, and over jobs that were taken back before the program had them. */
  #skipMarks() {
    let skipped = 0;
    while (this.#inbox.length > skipped && (this.#inbox[skipped]?.lost ?? true)) skipped++;
    this.#inbox.splice(0, skipped);
    this.#taken += skipped;
    return skipped;
  }

  arrive(first, values) {
    if (first !== this.#came || this.#came + values.length > this.#asked) {
      throw new ProtocolError("unexpected", `stream ${this.#number}: values from ${first} that were not asked for`);
    }
    this.#came += values.length;
    for (const value of values) {
      if (!Array.isArray(value)) throw new ProtocolError("malformed", "a value of a group that is no delivery");
      const isMark = typeof value[0] === "string";
      this.#inbox.push(isMark ? null : new Job(this, this.#names, value));
      if (isMark) this.#mark(...value);
      if (this.#over) return;
    }
    if (this.#skipMarks()) this.#ask();
    this.#serve();
  }

  #mark(kind, first, second, third) {
    if (kind === "held") {
      this.#pattern = first;
      this.#names = captureNames(first);
      this.ackWithin = Number(second) * 1000;
      this.#keep(new Map(third.map(([, , before, after]) => [before, after])));
      this.member.isHeld = true;
      this.member.held.resolve();
    } else if (kind === "revoked") {
      this.#lose(first);
    } else if (kind === "gone") {
      for (const job of [...this.member.out.values(), ...this.#inbox]) if (job?.token === first) job.gone = true;
    } else if (kind === "ended") {
      this.#finish();
    }
  }

  /** Takes over the new tokens of the jobs that this member keeps; all others are lost. */
  #keep(kept) {
    const before = [...this.member.out.values()];
    this.member.out.clear();
    for (const job of before) {
      if (kept.has(job.token)) {
        job.token = kept.get(job.token);
        this.member.out.set(job.token, job);
      } else {
        job.lost ||= !job.settled || job.queued; // of one that is being settled the answer says what became of it
      }
    }
  }

  #lose(token) {
    const job = this.member.out.get(token);
    if (job && (!job.settled || job.queued)) {
      this.member.out.delete(token);
      job.lost = true;
    }
    for (const waiting of this.#inbox) if (waiting?.token === token) waiting.lost = true;
  }

  /** Joins again on a new connection, with the jobs that the program has. */
  reopen(number, _resumed, moved) {
    if (this.#over) return;
    if (moved) {
      for (const job of this.member.out.values()) job.lost = true;
      this.member.out.clear();
    }
    const held = this.member.held;
    this.#begin();
    this.member.held.promise.then(held.resolve, held.reject); // for those who wait since before
    const kept = [...this.member.out.values()].filter((job) => !job.settled || job.queued || job.asked);
    this.#open(kept.map((job) => job.cell), number);
  }

  /** No epoch: each job has its own. */
  get seen() {
    return 0;
  }

  reach() {}

  ended() {
    this.#finish();
  }

  fail(error) {
    this.#finish(error);
  }
}
