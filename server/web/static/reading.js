/**
 * Sessions that wait for a daemon which is behind what their client has seen.
 *
 * A daemon that follows another one may be a little behind. A session is at one while no daemon leads, or all the time
 * if it only reads. Streams wait here until it has the epochs that the client has seen, above all of its own turns. The
 * rules are those of the client in Python (`dataspace/client/session/reading.py`).
 *
 * Always: no observation is opened at a daemon that lacks an epoch which the client had seen by then; streams are opened
 * in the order of their numbers.
 */

import { again, Broken } from "./errors.js";
import { Session } from "./session.js";

const BEHIND_MILLIS = 5000; // for so long a daemon that is behind is waited for, before another one is tried

/** A session whose quiet observations wait for what the client had seen before its connection began. */
export class CatchingUpSession extends Session {
  #link = null; // the connection for which the rest holds
  #reached = 0; // the epoch that its daemon has
  #held = new Map(); // the epochs that streams wait for, by their numbers
  #catchingUp = false;
  #opening = false;

  /** The epoch that streams wait for. */
  get least() {
    return this.seenBefore;
  }

  /** True if a stream may be of a daemon that is behind: a follower refuses others, and the client goes on at once. */
  waits(spec) {
    return spec.quiet === true;
  }

  openStream(stream, spec, items, bytes, number) {
    if (this.link !== this.#link) {
      this.#link = this.link;
      this.#reached = this.welcome?.epoch ?? 0;
      this.#held.clear();
    }
    const { least } = this;
    if (!this.up || this.#opening || !(this.#held.size || (least > this.#reached && this.waits(spec)))) {
      return super.openStream(stream, spec, items, bytes, number);
    }
    this.checkOpen();
    const taken = number ?? this.nextStream++;
    this.streams.set(taken, stream);
    this.#held.set(taken, least);
    this.#catchUp();
    return taken;
  }

  /** Sends a packet of a stream, unless the stream waits: it is opened with all its credit. */
  sendOn(packet) {
    if (!this.#held.has(packet[1])) super.sendOn(packet);
  }

  dropStream(number, stream) {
    if (this.streams.get(number) === stream && this.#held.delete(number)) this.takeStream(number);
    else super.dropStream(number, stream);
  }

  /** Asks how far the daemon is until nothing waits; opens what need wait no longer. */
  async #catchUp() {
    if (this.#catchingUp) return;
    this.#catchingUp = true;
    try {
      while (this.#held.size) {
        const link = this.link;
        const least = Math.max(...this.#held.values());
        let answer;
        try {
          answer = await this.request("frontier", { after: least - 1, wait: BEHIND_MILLIS });
        } catch (error) {
          if (!(error instanceof Broken) || !this.isOpen) throw error;
          continue;
        }
        if (link !== this.link || link !== this.#link) continue; // the streams were opened anew, or wait anew
        this.#reached = Math.max(this.#reached, Number(answer.epoch));
        if (this.#reached < least) {
          this.leave({ code: "behind", url: "", message: `epoch ${least} was seen, the daemon is at ${this.#reached}` });
        } else {
          this.#openHeld();
        }
      }
    } catch (error) {
      for (const number of [...this.#held.keys()]) {
        const stream = this.streams.get(number);
        this.#held.delete(number);
        this.streams.delete(number);
        stream?.fail(again(error));
      }
    } finally {
      this.#catchingUp = false;
    }
  }

  #openHeld() {
    this.#opening = true;
    try {
      for (const number of [...this.#held.keys()].sort((a, b) => a - b)) {
        const stream = this.streams.get(number);
        this.#held.delete(number);
        this.streams.delete(number);
        stream?.reopen(number, true, false);
      }
    } finally {
      this.#opening = false;
    }
  }
}

/** A reading session: streams that any daemon of a store may serve, over a connection apart. */
export class ReadingSession extends CatchingUpSession {
  #main;

  /** `main` is the session of the turns, with the same options. */
  constructor(url, options, main) {
    super(url, { ...options, owner: "", client: "", lease: 0, grace: 0, onConnection: undefined, reads: true });
    this.#main = main;
  }

  get least() {
    return Math.max(this.#main.seen, this.newestSeen);
  }

  waits() {
    return true;
  }
}
