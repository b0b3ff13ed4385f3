/** Patience: for how long calls wait while there is no connection. */

import { Unreachable } from "./errors.js";
import { Deferred, ELSEWHERE } from "./packets.js";

/** For how long a connection must have been there to count as one, and how long `drain` waits. */
export const LASTING_MILLIS = 500;
export const DRAIN_MILLIS = 10_000;

/** With these codes a goodbye is no refusal: the client connects again. */
export const PATIENT = new Set(["", "timeout", "stalled", "closing", ...ELSEWHERE]);

/** Of one client: `millis` for each call, null to wait for ever. */
export class Patience {
  #url;
  #millis;
  #away = true;
  #since = 0;
  #waiting = new Set();

  constructor(url, millis) {
    this.#url = url;
    this.#millis = millis;
  }

  /** Returns whether a call that began then has no time left. */
  isOver(began) {
    return this.#millis !== null && Date.now() - began >= this.#millis;
  }

  /** Called when the connection is lost: the time of all calls begins; it goes on where the connection served nothing. */
  lost(served = true) {
    this.#away = true;
    if (served) this.#since = Date.now();
    for (const each of this.#waiting) this.#begin(each);
  }

  /** Called when there is a connection: calls wait for the daemon's answer. */
  returned() {
    this.#away = false;
    for (const each of this.#waiting) clearTimeout(each.timer);
  }

  /** Settles as a promise does; throws `Unreachable` once the daemon has been away for so long meanwhile. */
  async wait(promise) {
    if (this.#millis === null) return promise;
    const each = { over: new Deferred(), timer: undefined, began: Date.now() };
    this.#waiting.add(each);
    if (this.#away) this.#begin(each);
    try {
      return await Promise.race([promise, each.over.promise]);
    } finally {
      clearTimeout(each.timer);
      this.#waiting.delete(each);
    }
  }

  /** Settles with the answer to a turn; once the daemon has been away for too long, `withdraw` drops an unsent one. */
  async answerTo(ticket, withdraw) {
    try {
      return await this.wait(ticket.promise);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      const what = withdraw() ? "not sent, and will not be" : "sent before, so it may have taken effect";
      throw new Unreachable(`${error.text}: the turn was ${what}`);
    }
  }

  #begin(each) {
    clearTimeout(each.timer);
    const error = new Unreachable(`the daemon at ${this.#url} has been away for ${this.#millis} ms`);
    const due = Math.max(this.#since, each.began) + this.#millis;
    each.timer = setTimeout(() => each.over.reject(error), Math.max(0, due - Date.now()));
  }
}
