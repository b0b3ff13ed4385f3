/**
 * A client of the dataspace daemon for browsers, Node, Deno and Bun: ES modules without dependencies and build step.
 *
 *     const space = await connect("ws://127.0.0.1:7378/ws", { name: "page" });
 *     const claim = await space.assert(record("present", "Alice"));
 *     for await (const epoch of space.observe("present($who)")) console.log(epoch.added, epoch.removed);
 *
 * This module is what programs import; the others beside it are its parts: values, their msgpack bytes and their text,
 * patterns, turns, observations, topics, leases, the session.  WIRE.md is the protocol, JAVASCRIPT.md has examples.
 *
 * Always: turns take effect in the order in which they were submitted, and none twice; an observation yields whole
 * epochs, in ascending order, without a gap over lost connections; what waits in it is bounded by its credit.
 */

import { Closed, noOptions, optionsOf, TimedOut, UsageError } from "./errors.js";
import { Jobs } from "./jobs.js";
import { LiveMap } from "./live.js";
import { askNamed, isOfDaemon } from "./named.js";
import { Observation } from "./observations.js";
import { Publication } from "./publications.js";
import { CatchingUpSession, ReadingSession } from "./reading.js";
import { inTurn } from "./reports.js";
import { randomHex } from "./text.js";
import { Subscription } from "./subscriptions.js";
import { isOfTopics, TopicSessions } from "./topics.js";
import { checkTraceparent, Draft } from "./turns.js";

export {
  AnotherSpace,
  Broken,
  Closed,
  DataspaceError,
  DeliveryLost,
  ExpectationFailed,
  ProtocolError,
  Refused,
  SeveralRows,
  TimedOut,
  Unreachable,
  UsageError,
} from "./errors.js";
export { compare, equal, Float, Record, record, Time, ValueMap } from "./values.js";
export { key, pack } from "./packing.js";
export { unpack } from "./unpacking.js";
export { fromJson, parse, text, toJson } from "./text.js";
export { any, capture, captureNames, exact, lit, matcher } from "./patterns.js";
export { absent, Claim, Draft, exactly, unchanged } from "./turns.js";
export { Epoch, Observation } from "./observations.js";
export { Job, Jobs } from "./jobs.js";
export { LiveMap } from "./live.js";
export { Subscription, TopicEpoch } from "./subscriptions.js";
export { Capability, Publication } from "./publications.js";
export { webSocket } from "./transport.js";

const SETTINGS = {
  space: "main",
  name: "",
  token: "",
  client: "",
  owner: "",
  heartbeat: 15_000,
  grace: 0,
  lease: 0,
  reconnect: true,
  wait: 0,
  timeout: null,
  read: "leader",
  onConnection: undefined,
  transport: undefined,
};

/**
 * Connects to a daemon, and returns its space.
 *
 * Facts belong to the session and end with it; with `owner` they belong to that durable name. With `grace`, in
 * milliseconds, the session outlives a lost connection for so long. With `lease`, in milliseconds, facts belong to a
 * lease, which is renewed until `close`: they outlast connections and restarts of the daemon. Throws `Unreachable` if nothing answers, and
 * `ProtocolError` if the daemon refuses the session, with the code `unauthorized` for a token that it does not know.
 *
 * With `wait` a daemon that does not answer yet is tried again for so many milliseconds. With `timeout` a call that
 * waits for a daemon that is away throws `Unreachable` after so many; its text says whether a turn was sent.
 *
 * `url` may have several addresses of one store. With `read: "any"` quiet observations are served by any of them, over a
 * second connection, once it has what this client has seen.
 *
 * In a cluster a client of another space than `main` opens a further connection when it first uses a topic, to the daemon
 * that leads the topics.
 */
export async function connect(url, options = {}) {
  const chosen = optionsOf(SETTINGS, options);
  if (chosen.owner.startsWith("lease:")) throw new UsageError("a lease is asked for with the option `lease`");
  if (!(chosen.lease >= 0)) throw new UsageError(`a lease is so many milliseconds, not ${chosen.lease}`);
  if (chosen.lease) {
    const millis = Math.max(1, Math.round(chosen.lease));
    const name = chosen.owner || chosen.name || "client";
    Object.assign(chosen, { lease: millis, owner: `lease:${millis}:${name}-${randomHex(6)}` });
  }
  if (!(chosen.wait >= 0 && chosen.wait < Infinity)) throw new UsageError(`wait is in milliseconds, not ${chosen.wait}`);
  if (!(chosen.timeout === null || chosen.timeout > 0)) {
    throw new UsageError(`timeout is in milliseconds, or null, not ${chosen.timeout}`);
  }
  if (!READ.includes(chosen.read)) throw new UsageError(`read is one of ${READ.join(", ")}, not ${chosen.read}`);
  const session = new CatchingUpSession(url, chosen);
  await session.enter();
  if (chosen.read === "leader") return new Space(session);
  const reads = new ReadingSession(url, chosen, session);
  try {
    await reads.enter();
  } catch (error) {
    session.end(error);
    throw error;
  }
  return new Space(session, reads);
}

const READ = ["leader", "any"];
const TURN = { expect: [], done: [], traceparent: "" };
const ASSERT = { owner: "", ...TURN };
const PUT = { by: null, ...ASSERT };
const FIRST = { timeout: null };

/** A space in a daemon; made by `connect`. */
export class Space {
  #session;
  #reads;
  #topics;
  #handle;
  #durable;

  constructor(session, reads = session) {
    this.#session = session;
    this.#reads = reads; // what serves quiet observations
    this.#topics = new TopicSessions(session);
    // a durable owner may have claims of other runs, below 2^48 some that the daemon numbers
    this.#durable = 2 ** 48 + Math.floor(Math.random() * 2 ** 52);
    this.#handle = session.options.owner && !session.options.lease ? null : 1;
  }

  #take(isOther) {
    return isOther || this.#handle === null ? this.#durable++ : this.#handle++;
  }

  /** Asserts a fact, of the client or of a durable `owner`, and returns its claim when that is on disk. */
  async assert(value, options = {}) {
    const { owner, ...turn } = optionsOf(ASSERT, options);
    let claim;
    await this.turn((draft) => {
      claim = draft.assert(value, { owner });
    }, turn);
    return claim;
  }

  /** Sends a message, and returns its epoch. */
  async send(value, options = {}) {
    return this.turn((draft) => draft.send(value), options);
  }

  /**
   * Calls a function with a draft, commits what it has collected as one turn, and returns the epoch.
   *
   * If something that it expects (`absent`, `exactly`, `unchanged`) does not hold in the state before the turn, nothing
   * happens, and it throws `ExpectationFailed` with what was found; any other `Refused` also means that nothing has
   * happened. Nothing is sent if the function throws. Jobs in `done` are done with the turn: both happen, or neither does, and
   * it throws `DeliveryLost` where another member has one of them. A daemon that makes spans of the turn makes them parts of the
   * trace that `traceparent` names, as W3C Trace Context writes it; to any other it is not sent.
   */
  async turn(fill, options = {}) {
    const { expect, done, traceparent } = optionsOf(TURN, options);
    checkTraceparent(traceparent);
    let isOver = false;
    const draft = new Draft(this, this.#session.options.owner, (isOther) => this.#take(isOther), () => isOver);
    let filled;
    try {
      filled = fill(draft);
    } finally {
      isOver = true;
    }
    if (typeof filled?.then === "function") {
      filled.then(undefined, () => {}); // what it does later throws, and the caller is told here
      throw new UsageError("what fills a turn must not wait: the turn is sent when it returns");
    }
    const jobs = [...done];
    const submit = (deliveries) => this.#session.submit(draft.parts(), { expected: [...expect], traceparent, deliveries });
    return jobs.length ? inTurn(this.#session, jobs, submit) : submit([]);
  }

  /**
   * Asserts a fact in place of the facts of its owner with the same key, and returns the epoch.
   *
   * The key is what the pattern `by` matches; by default all fields but the last. The owner is this client, or the durable
   * `owner`. It is one turn, so no observer sees both facts, or none; the other options are those of `turn`.
   */
  async put(value, options = {}) {
    const { by, owner, ...turn } = optionsOf(PUT, options);
    return this.turn((draft) => {
      draft.put(value, { by, owner });
    }, turn);
  }

  /**
   * Returns the captures of a fact that matches, or of the first fact or message that comes.
   *
   * Throws `TimedOut` after so many milliseconds.
   */
  async first(pattern, options = {}) {
    const { timeout } = optionsOf(FIRST, options);
    const observation = this.observe(pattern, { quiet: true });
    let timer;
    let late = false;
    if (timeout !== null) {
      timer = setTimeout(() => {
        late = true;
        observation.close();
      }, timeout);
    }
    try {
      for await (const { added, messages } of observation) {
        for (const row of [...added, ...messages]) return row;
      }
    } finally {
      clearTimeout(timer);
      observation.close();
    }
    throw late ? new TimedOut(`nothing has matched within ${timeout} ms`) : new Closed("the observation has ended");
  }

  /** Observes the changes of a pattern, given as text or as a pattern; JAVASCRIPT.md has the options. */
  observe(pattern, options = {}) {
    this.#session.checkOpen();
    return new Observation(options.quiet === true ? this.#reads : this.#session, pattern, options);
  }

  /**
   * Keeps a map of what matches a pattern, by a capture or a list of captures; JAVASCRIPT.md shows its use.
   *
   * `live("present($who, $room)", "who").get("Alice")` is `{who: "Alice", room: "hall"}`, as long as that is so.
   */
  live(pattern, by, options = {}) {
    this.#session.checkOpen();
    return new LiveMap(options.quiet === true ? this.#reads : this.#session, pattern, by, options);
  }

  /**
   * Becomes a member of a group, which divides the facts and messages that match a pattern among its members:
   * `for await (const job of space.consume("job($id)", { group: "workers" }))`; JAVASCRIPT.md has the options.
   */
  consume(pattern, options = {}) {
    this.#session.checkOpen();
    return new Jobs(this.#session, pattern, options);
  }

  /** Returns what matches a pattern now, as rows of captures. */
  async matches(pattern, ...more) {
    noOptions(more);
    const observation = this.observe(pattern, { quiet: true, window: 1 });
    try {
      return (await this.#reads.patience.wait(observation.read()))?.added ?? [];
    } finally {
      observation.close();
    }
  }

  /**
   * Subscribes to the whole epochs of a topic; what is sent after it returns is not missed.
   *
   * JAVASCRIPT.md has the options. Throws `Refused` with `no-topic` if there is none within `timeout` milliseconds.
   */
  async subscribe(topic, options = {}) {
    return new Subscription(await this.#topics.session(), topic, options).open();
  }

  /** Publishes to a partition of a topic, which is made if there is none; `close()` of the publication completes it. */
  async publish(topic, options = {}) {
    return new Publication(await this.#topics.session(), topic, options).join();
  }

  /** Ends a topic that this session made, or a durable one without publishers. */
  async endTopic(topic, ...more) {
    noOptions(more);
    await this.request("end-topic", { topic });
  }

  /** Waits until everything sent before has been handled and is on disk; returns the newest epoch. */
  async sync(...more) {
    noOptions(more);
    return this.#session.request("sync", {});
  }

  /** Returns the status of a group, and as `jobs` up to `most` of those that it has, without taking any. */
  async peek(group, options = {}) {
    return this.#session.request("peek", { group, ...optionsOf({ most: 100 }, options) });
  }

  /** Returns the status of the daemon that serves this connection, and of the space there. */
  async status(...more) {
    noOptions(more);
    return this.#session.request("status", {});
  }

  /** Sends one of the requests of WIRE.md and returns its answer; throws `Refused` where it is denied. */
  async request(verb, args = {}, ...more) {
    noOptions(more);
    if (isOfDaemon(verb)) return askNamed(this.#session, verb, args);
    return (isOfTopics(verb) ? await this.#topics.session() : this.#session).request(verb, args);
  }

  /** Waits until every turn has its answer (10 s at most), and ends the session, and its lease. */
  async close(...more) {
    noOptions(more);
    await this.#topics.close();
    if (this.#reads !== this.#session) await this.#reads.close();
    return this.#session.close();
  }

  /** The welcome of the newest connection: `session`, `space`, `epoch`, `sequence`, `limits`, `features`. */
  get welcome() {
    return this.#session.welcome;
  }

  /** How often a lost connection was made again. */
  get reconnects() {
    return this.#session.reconnects;
  }

  /** How many turns have no answer yet. */
  get inFlight() {
    return this.#session.inFlight.size;
  }
}

if (Symbol.asyncDispose) {
  Object.defineProperty(Space.prototype, Symbol.asyncDispose, { value: Space.prototype.close });
  Object.defineProperty(LiveMap.prototype, Symbol.asyncDispose, { value: async function () { this.close(); } });
  Object.defineProperty(Jobs.prototype, Symbol.asyncDispose, { value: Jobs.prototype.return });
  Object.defineProperty(Observation.prototype, Symbol.asyncDispose, { value: Observation.prototype.return });
  Object.defineProperty(Subscription.prototype, Symbol.asyncDispose, { value: Subscription.prototype.return });
  Object.defineProperty(Publication.prototype, Symbol.asyncDispose, { value: Publication.prototype.close });
}
