/** Connecting: one of the addresses of a store, its welcome, and the pauses between attempts. */

import { Broken, Closed, malformed, ProtocolError, Unreachable } from "./errors.js";
import { pack } from "./packing.js";
import { BYE, Deferred, ELSEWHERE, PACKET_DEPTH, WELCOME } from "./packets.js";
import { unpack } from "./unpacking.js";

export const CONNECT_MILLIS = 10_000;
const EACH_MILLIS = 5000; // for one of several addresses: the next one may answer
const PAUSES = [0, 50, 100, 250, 500, 1000, 2000, 4000];
const LEADERLESS = 0.15; // while only followers answer, a pause is at most this part of the time since the loss

/** Codes of a goodbye in place of a welcome after which the client tries again. */
export const CROWDED = new Set(["limit", "timeout", "closing", ...ELSEWHERE]);

/** A daemon does not have yet what the client has seen. */
class Behind extends Broken {}

/** Connects for a session, the `user`, whose functions take what comes. */
export class Uplink {
  #open;
  #user;
  #hurry = () => {};
  #isLeaderless = false;
  #lost = Date.now();

  constructor(candidates, open, user) {
    this.candidates = candidates;
    this.#open = open;
    this.#user = user;
  }

  /** The address of the connection, or of the last attempt. */
  get url() {
    return this.candidates.now;
  }

  /** Connects to one of the addresses; throws where none serves this client. */
  async reach() {
    const { candidates } = this;
    const failed = [];
    let behind;
    candidates.begin();
    for (let url = candidates.take(); url !== undefined && this.#user.isOpen(); url = candidates.take()) {
      try {
        await this.#connect();
        return;
      } catch (error) {
        if (error instanceof ProtocolError) {
          if (!CROWDED.has(error.code)) throw error;
          this.sentAway(error);
        }
        if (error instanceof Behind) behind ??= url;
        else failed.push(error);
      }
    }
    if (behind && this.#user.isOpen()) {
      candidates.now = behind; // none is further
      await this.#connect(true);
      return;
    }
    const refusal = failed.find((error) => error instanceof ProtocolError);
    if (refusal || failed.length === 1) throw refusal ?? failed[0];
    throw new Unreachable(failed.map((error) => error.text).join("; "));
  }

  /** Opens one connection; settles when the welcome has come, or with the reason why none did. */
  #connect(latest = this.candidates.listed.length === 1) {
    const millis = this.candidates.listed.length === 1 ? CONNECT_MILLIS : EACH_MILLIS;
    const user = this.#user;
    const welcomed = new Deferred();
    let over = false;
    const began = Date.now();
    let link = null;
    const fail = (error) => {
      over = true;
      clearTimeout(patience);
      link?.close();
      welcomed.reject(error);
    };
    const patience = setTimeout(() => fail(new Unreachable(`no welcome from ${this.url}`)), millis);
    const heard = {
      opened: () => link.send(pack(user.hello(), PACKET_DEPTH)),
      message: (bytes) => {
        if (over) return;
        if (user.isCurrent(link)) return user.hear(bytes, began);
        if (!user.isOpen()) return fail(new Closed(`closed before ${this.url} answered`));
        try {
          const packet = unpack(bytes);
          if (packet[0] === BYE) return fail(new ProtocolError(packet[1], packet[2], packet[3]));
          if (packet[0] !== WELCOME) throw malformed("the first packet of a daemon is its welcome");
          const [, , , space, epoch] = packet;
          if (!latest && user.isBehind(space, epoch)) throw new Behind(`${this.url} is behind`);
          clearTimeout(patience);
          this.candidates.welcomed();
          this.#isLeaderless = false;
          user.begin(link, packet);
          welcomed.resolve();
        } catch (error) {
          fail(error);
        }
      },
      closed: (reason) => {
        if (over) return;
        over = true;
        clearTimeout(patience);
        if (user.isCurrent(link)) user.lost(reason, began);
        else welcomed.reject(new Unreachable(`${this.url}: ${reason}`));
      },
    };
    try {
      link = this.#open(this.url, heard);
    } catch (error) {
      fail(new Unreachable(`${this.url}: ${error.message}`));
    }
    return welcomed.promise;
  }

  /** Notes that a daemon does not serve this client. */
  sentAway(refusal) {
    this.#isLeaderless = ELSEWHERE.includes(refusal.code);
    this.candidates.sentAway(refusal);
  }

  /** Notes that a connection was of use for a while before it was lost. */
  lasted() {
    this.#lost = Date.now();
    this.candidates.lasted();
  }

  /** Waits between attempts, longer and longer, with jitter so that clients do not return at once. */
  wait(attempt) {
    return new Promise((resolve) => {
      const pause = PAUSES[Math.min(attempt, PAUSES.length - 1)];
      const most = this.#isLeaderless ? Math.max(PAUSES[2], LEADERLESS * (Date.now() - this.#lost)) : pause;
      const millis = Math.min(pause, most) * (0.5 + Math.random());
      const timer = setTimeout(resolve, millis);
      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Ends a wait between attempts. */
  hurry() {
    this.#hurry();
  }
}
