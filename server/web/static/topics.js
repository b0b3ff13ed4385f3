/**
 * Which connection a client uses for topics: its own, or another one. The rules are those of the client in Python
 * (`dataspace/client/topics.py`).
 *
 * The daemons of a cluster lead each space by itself, and topics with `main`. A client of another space opens a further
 * connection with its first use of a topic, and goes with it to the daemon that leads them.
 *
 * Always: there is one such connection, for all topics; it comes back also where the client's own does not, sends no turns,
 * and ends with the client.
 */

import { Session } from "./session.js";

const APART = { reads: true, reconnect: true, client: "", owner: "", grace: 0, lease: 0, onConnection: undefined };
const OF_TOPICS = new Set(["join", "lookup", "end-topic"]);

/** Returns whether a verb is about topics. */
export const isOfTopics = (verb) => OF_TOPICS.has(verb) || String(verb).startsWith("topic-");

/** The sessions of one client that topics may go over. */
export class TopicSessions {
  #session;
  #apart = null;
  #opening = null;

  constructor(session) {
    this.#session = session;
    session.lasting.add({ reconnected() {}, fail: (error) => this.#apart?.end(error) });
  }

  /** Returns the session for topics; may open it. */
  async session() {
    this.#session.checkOpen();
    if (!this.#session.welcome.features.topics) return this.#session;
    if (this.#apart?.ended) this.#opening = null; // by an administrator, or it was not reached: the next use tries again
    this.#opening ??= this.#open();
    return this.#opening;
  }

  async #open() {
    const { options, uplink } = this.#session;
    this.#apart = new Session(uplink.candidates.listed, { ...options, ...APART });
    await this.#apart.enter();
    return this.#apart;
  }

  async close() {
    await this.#apart?.close();
  }
}
