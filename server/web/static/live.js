/** Live maps: what matches a pattern now, by key, as objects that a page can show. */

import { again, AnotherSpace, Closed, DataspaceError, optionsOf, TimedOut, UsageError } from "./errors.js";
import { Observation } from "./observations.js";
import { Deferred } from "./packets.js";
import { captureNames } from "./patterns.js";
import { formOf } from "./puts.js";
import { KeyTable } from "./tables.js";

const OPTIONS = { many: false, sort: null, asOf: null, follow: false, identity: "", durable: false, pace: 0, quiet: false };
const CHANGED = { timeout: null };

/**
 * What matches a pattern, kept up to date: a map from the captures that `by` names to rows.
 *
 * A row is an object with the captures by name, and never changes. With one name in `by` keys are the values of that
 * capture, with several they are lists of values; keys are compared as values, not as JavaScript does. Keys are in the
 * order in which they appeared, or in that of `sort`, which compares rows as `Array.prototype.sort` does.
 *
 * With `many` the frozen list of its rows stands for a key, oldest first. Without it, to read a key that has several
 * throws `SeveralRows`, as does `old` or `now` of a change; the map goes on. Messages are no rows.
 *
 * Always: the map is the state at a whole epoch, since it moves as epochs arrive, and never within a task of the program.
 * It goes on over lost connections, and shows meanwhile what was last known; once closed it stays as it is.
 */
export class LiveMap {
  #session;
  #observation;
  #table;
  #sort;
  #listeners = new Set();
  #sorted = null; // the entries as they are shown, until something changes
  #snapshot = null;
  #first = new Deferred();
  #news = new Deferred(); // settles with the next change, and at the end
  #waiters = new Set(); // of those that wait for an epoch

  constructor(session, pattern, by, options) {
    const { many, sort, asOf, follow, ...observing } = optionsOf(OPTIONS, options);
    if (sort !== null && typeof sort !== "function") throw new UsageError(`sort is a function that compares two rows, not ${sort}`);
    if (follow && asOf === null) throw new UsageError("follow goes on from the epoch of asOf; a map without asOf does so anyway");
    const form = formOf(pattern);
    this.#table = new KeyTable(captureNames(form), by, many);
    this.#sort = sort;
    this.#session = session;
    /** The epoch that the map is of; 0 before the first. */
    this.epoch = 0;
    /** Why the map is not kept up to date any more; null as long as it is. */
    this.error = null;
    this.#first.promise.catch(() => {}); // `error` has it as well
    this.#observation = new Observation(session, form, { ...observing, asOf, upto: follow ? null : asOf }, {
      table: this.#table,
      applied: (epoch, isChange) => this.#applied(epoch, isChange),
      reached: (epoch) => this.#reached(Math.max(this.epoch, epoch)),
      moved: () => this.#moved(),
      over: (error) => this.#end(error ?? new Closed(`the map is complete: it is the state at epoch ${this.epoch}`)),
    });
  }

  /** Resolves to this map when it has the first state; rejects if that does not come. */
  get ready() {
    return this.#first.promise;
  }

  get size() {
    return this.#table.size;
  }

  /** The row of a key, with `many` its rows; `undefined` if there is none. */
  get(at) {
    return this.#table.get(at);
  }

  has(at) {
    return this.#table.has(at);
  }

  /** Keys, as of now; O(keys), as `values` and `entries` are, until something changes. */
  keys() {
    return (this.#sort ? this.#entries().map(([at]) => at) : this.#table.keys()).values();
  }

  values() {
    return this.snapshot.values();
  }

  entries() {
    return this.#entries().map(([at, row]) => [at, row]).values();
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  /** The rows as a frozen list, which is the same one until something changes. */
  get snapshot() {
    return (this.#snapshot ??= Object.freeze(this.#entries().map(([, row]) => row)));
  }

  #entries() {
    if (this.#sorted) return this.#sorted;
    const entries = this.#table.entries();
    if (this.#sort) entries.sort(([, one], [, other]) => this.#sort(one, other));
    return (this.#sorted = entries);
  }

  /**
   * Waits for a difference to what was last taken, and returns it: a list of `{key, old, now}`, null for no row.
   *
   * The difference is net: a row that changed and changed back is no change. The first state is none either. When it
   * returns, the map is as the changes say. Of several that wait one gets the changes. Throws `TimedOut` after so many
   * milliseconds, and `Closed` once the map is closed.
   */
  async changed(options = {}) {
    const { timeout } = optionsOf(CHANGED, options);
    const late = new Deferred();
    const timer = timeout === null ? undefined : setTimeout(late.resolve, timeout, true);
    try {
      for (;;) {
        // Taken here and not where an epoch arrives: a further one may arrive before a waiting program runs
        const changes = this.#table.take();
        if (changes.length) return changes;
        if (this.error) throw again(this.error);
        const isLate = await Promise.race([this.#news.promise, late.promise]);
        if (isLate) throw new TimedOut(`nothing has changed within ${timeout} ms`);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Yields one change after the other, each up to now, until the map is closed; leaving the loop does not close it. */
  async *[Symbol.asyncIterator]() {
    for (;;) {
      const change = this.#table.takeOne();
      if (change) yield change;
      else if (this.error instanceof Closed) return;
      else if (this.error) throw again(this.error);
      else await this.#news.promise;
    }
  }

  /** Resolves to this map once it is of an epoch, or of a later one: `await map.at(await space.put(…))` reads what was written. */
  async at(epoch) {
    if (!(Number.isSafeInteger(epoch) && epoch >= 0)) throw new UsageError(`an epoch is 0 or more, not ${epoch}`);
    const { patience } = this.#session;
    await patience.wait(this.ready);
    if (this.epoch >= epoch) return this;
    if (this.error) throw again(this.error);
    const waiter = { epoch, ...new Deferred() };
    this.#waiters.add(waiter);
    const options = { after: this.epoch, upto: epoch, quiet: true, window: 1 };
    const missing = new Observation(this.#session, this.#observation.pattern, options);
    this.#look(missing, waiter);
    try {
      await patience.wait(waiter.promise);
    } finally {
      this.#waiters.delete(waiter);
      missing.close();
    }
    return this;
  }

  /**
   * Reads the log up to an epoch that is waited for: if nothing changes here until then, nothing will arrive.
   *
   * The daemon's own marks of that come with its heartbeat only.
   */
  async #look(missing, waiter) {
    try {
      for await (const { added, removed } of missing) if (added.length || removed.length) return; // they are on their way
      if (this.#waiters.has(waiter)) this.#reached(Math.max(this.epoch, waiter.epoch));
    } catch (error) {
      if (!(error instanceof DataspaceError)) throw error; // where the log is gone a mark will say so
    }
  }

  /** Calls a function after each epoch with changes, and at the end; returns a function that stops that. */
  subscribe(call) {
    const each = { call };
    this.#listeners.add(each);
    return () => this.#listeners.delete(each);
  }

  /** Ends the observation; what is in the map stays. */
  close() {
    this.#end(new Closed("the live map was closed"));
    this.#observation.close();
  }

  #applied(epoch, isChange) {
    this.#first.resolve(this);
    if (isChange) this.#sorted = this.#snapshot = null;
    this.#reached(epoch);
    if (isChange) this.#tell();
  }

  #reached(epoch) {
    this.epoch = epoch;
    for (const waiter of this.#waiters) if (epoch >= waiter.epoch) waiter.resolve();
  }

  /** Called when the connection is to another space, whose epochs say nothing about those that are waited for. */
  #moved() {
    for (const waiter of this.#waiters) waiter.reject(new AnotherSpace(`epoch ${waiter.epoch} is of another space than the map is now`));
    this.#waiters.clear();
  }

  #end(error) {
    if (this.error) return;
    this.error = error;
    this.#first.reject(again(error));
    for (const waiter of this.#waiters) waiter.reject(again(error));
    this.#waiters.clear();
    this.#tell();
  }

  #tell() {
    this.#news.resolve();
    this.#news = new Deferred();
    for (const { call } of [...this.#listeners]) {
      try {
        call(this);
      } catch (error) {
        queueMicrotask(() => {
          throw error; // the application's, which changes nothing here
        });
      }
    }
  }
}
