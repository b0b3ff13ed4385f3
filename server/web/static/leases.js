/**
 * A lease: the owner of a client's facts that outlasts connections and restarts of the daemon, while it is renewed.
 *
 * Always: no turn is sent in the name of a lease that is not granted, or has ended; where a new one is granted in place
 * of an old one, the claims of the old one are asserted again, in turns of their own.
 */

import { Broken, Refused } from "./errors.js";
import { Deferred } from "./packets.js";

export class Lease {
  #session;
  #about;
  #every;
  #asking = false;
  #renewed = 0;
  #first = new Deferred();
  #wasGranted = false;
  #timer = null;

  constructor(session, owner, millis) {
    this.#session = session;
    this.#about = { owner };
    this.#every = millis / 3;
    this.#first.promise.catch(() => {}); // that it is denied later ends the session
  }

  /** Settles when the lease is granted for the first time, or denied. */
  get granted() {
    return this.#first.promise;
  }

  /** Requests the lease; there must be a connection, and turns must be held. */
  async ask() {
    this.#asking = true;
    let answer;
    try {
      answer = await this.#session.ask("lease", this.#about).promise;
    } catch (error) {
      if (error instanceof Refused) this.#denied(error); // else it is requested again with the next connection
      return;
    }
    this.#asking = false;
    this.#renewed = Date.now();
    this.#timer ??= setInterval(() => this.beat(Date.now()), Math.max(1, this.#every / 4));
    this.#session.holdsAgain(answer.fresh === true, this.#wasGranted);
    this.#wasGranted = true;
    this.#first.resolve();
  }

  #denied(error) {
    this.#first.reject(error);
    if (this.#wasGranted) this.#session.end(error);
  }

  /** Renews the lease if a third of its time is over. */
  beat(now) {
    if (!this.#wasGranted || this.#asking || now - this.#renewed < this.#every || !this.#session.up) return;
    this.#renewed = now;
    this.#session.ask("renew", this.#about).promise.catch((error) => {
      if (error instanceof Refused) this.lose();
      else if (!(error instanceof Broken)) this.stop();
    });
  }

  /** Called when the lease has ended before it was renewed: turns wait until another one is granted. */
  lose() {
    if (this.#asking || !this.#session.up) return;
    this.#session.leaseEnded();
    this.ask();
  }

  /** Ends the lease, which retracts its facts, if there is a connection to say so. */
  end() {
    this.stop();
    if (this.#session.up) this.#session.ask("release", this.#about).promise.catch(() => {});
  }

  /** Renews it no more: there will be no further connection. */
  stop(error) {
    clearInterval(this.#timer);
    if (error) this.#first.reject(error);
  }
}
