/**
 * The addresses of one store, and which of them is tried next: where a daemon has sent the client, the last good one,
 * then the others. The rules are those of the client in Python (`dataspace/transport/candidates.py`).
 */

import { UsageError } from "./errors.js";

const HOPS = 3; // how often in a row a client goes at once where it is sent
const FAMILIES = { "ws:": "ws", "wss:": "ws", "http:": "ws", "https:": "ws", "tcp:": "tcp", "tls:": "tcp" };
const PLAIN = new Set(["ws:", "http:", "tcp:"]);
const OWN_NAME = /^(localhost(\.localdomain)?|localhost6|ip6-localhost|ip6-loopback|.*\.localhost)$/;
const OWN_ADDRESS = /^(127|0)\.\d+\.\d+\.\d+$/;
const IN_SIX = /^\[(?:::ffff:|::|64:ff9b::)([0-9a-f]{1,4}):[0-9a-f]{1,4}\]$/; // IPv4 within IPv6, and its first half

/** Returns the addresses of a list, or of text in which commas divide them; each one once. */
export function addressesOf(url) {
  const said = (Array.isArray(url) ? url : [url]).flatMap((each) => String(each).trim().split(/\s*,\s*(?=[a-z]+:)/i));
  if (!said.length) throw new UsageError("no address: a client needs one at least");
  return [...new Set(said)];
}

/** Returns whether a daemon may send its clients on: to the same kind of address, and to no less secure one. */
export function maySendOn(from, to) {
  let source, target;
  try {
    source = new URL(from, globalThis.location?.href);
    target = new URL(to);
  } catch {
    return false;
  }
  const family = FAMILIES[target.protocol];
  if (!family || family !== FAMILIES[source.protocol]) return false;
  if (PLAIN.has(target.protocol) && !PLAIN.has(source.protocol)) return false;
  return !isOwnMachine(target.hostname) || isOwnMachine(source.hostname);
}

/** True for each spelling of an address by which a machine reaches itself alone; names are not resolved here. */
export function isOwnMachine(host) {
  const name = canonical(host);
  if (!name || OWN_NAME.test(name) || OWN_ADDRESS.test(name) || name === "[::1]" || name === "[::]") return true;
  const half = parseInt(IN_SIX.exec(name)?.[1] ?? "", 16) >> 8;
  return IN_SIX.test(name) && (half === 127 || half === 0);
}

/** Returns a host as the URL of a web page has it: `127.1` and `0x7f.1` are `127.0.0.1`. */
function canonical(host) {
  try {
    return new URL(`http://${host}`).hostname.replace(/\.$/, "");
  } catch {
    return host.toLowerCase();
  }
}

export class Candidates {
  #order;
  #target = null;
  #left = [];
  #hops = 0;
  #stuck = new Set(); // listed addresses whose daemons have sent this client to where it may not go

  #stays;

  /** `shuffled` if any of the addresses will do; a client that `stays` goes to no address that it has not named. */
  constructor(listed, shuffled = false, stays = false) {
    this.listed = listed;
    this.#stays = stays;
    this.#order = shuffled ? shuffledOf(listed) : [...listed];
    this.now = this.#order[0]; // the address of the connection, or of the last attempt
  }

  /** True if the client has named this daemon, and no other one. */
  get isNamed() {
    return this.listed.length === 1 && this.now === this.listed[0];
  }

  /** True if a daemon has sent the client to an address, which is to be tried without a pause. */
  get isSentOn() {
    return this.#target !== null && this.#hops <= HOPS;
  }

  /** Begins a round, between two of which the caller makes a pause. */
  begin() {
    const target = this.#target === null ? [] : [this.#target];
    // after too many hops in a row the listed addresses come first, as those may loop
    const others = this.isSentOn || !target.length ? [] : this.#order.filter((each) => each !== this.now);
    this.#left = [...new Set([...others, ...target, ...this.#order])];
    this.#target = null;
  }

  /** Returns the address to try next, or undefined at the end of the round. */
  take() {
    let next;
    if (this.isSentOn) {
      next = this.#target;
      this.#target = null;
      this.#left = this.#left.filter((each) => each !== next);
    } else {
      next = this.#left.shift();
    }
    if (next !== undefined) this.now = next;
    return next;
  }

  /** Notes that the address is a good one. */
  welcomed() {
    this.#order = [this.now, ...this.#order.filter((each) => each !== this.now && this.listed.includes(each))];
  }

  /** Notes that a connection was of use for a while, so that the next hops are the first in a row. */
  lasted() {
    this.#hops = 0;
    this.#stuck.clear();
  }

  /** Returns whether a daemon sends this client to where it may not go, and so does every listed one. */
  isStuck({ code, url }) {
    if (code !== "elsewhere" || !url || this.#mayGo(url)) return false;
    this.#stuck.add(this.now);
    return this.listed.every((each) => this.#stuck.has(each));
  }

  #mayGo(url) {
    return this.listed.includes(url) || (!this.#stays && maySendOn(this.now, url));
  }

  /** Notes that the daemon does not serve this client; `url` is the address of the one that does, if it says so. */
  sentAway({ code, url }) {
    this.#order = [...this.#order.filter((each) => each !== this.now), ...this.#order.filter((each) => each === this.now)];
    if (!url || code === "no-leader" || url === this.now) return;
    if (this.#mayGo(url)) {
      this.#target = url;
      this.#hops++;
    }
  }
}

function shuffledOf(listed) {
  const left = [...listed];
  return listed.map(() => left.splice(Math.floor(Math.random() * left.length), 1)[0]);
}
