/** Who owns the facts that match a pattern: asked anew as they change, within bounds. */

import { Record, key } from "../static/dataspace.js";

const MOST_ROWS = 1000;
const MOST_CLAIMS = 10_000;
const PAUSE = 1000;
const SHARE = 20;

/** Returns what a claim says of its owner, with the bearer and the stamp where there are any. */
export function ownerText({ owner, bearer, stamp }) {
  const said = [owner];
  if (bearer && !String(owner).includes(bearer)) said.push(`(${bearer})`);
  const words = Object.entries(stamp ?? {}).map(([name, value]) => `${name}=${value}`);
  if (words.length) said.push(`[${words.join(", ")}]`);
  return said.join(" ");
}

export class Owners {
  #timer = 0;
  #asking = false;
  #wanted = false;
  #turn = 0;

  constructor(app, onchange) {
    this.app = app;
    this.onchange = onchange;
    this.known = new Map();
    this.isLarge = false;
  }

  /** Begins with another pattern. */
  of(pattern) {
    this.#turn++;
    this.pattern = pattern;
    this.known = new Map();
    this.isLarge = false;
  }

  /** Is told that the facts have changed, and how many there are. */
  changed(total) {
    this.isLarge = total > MOST_ROWS;
    if (this.isLarge || !this.app.may("inspect")) return;
    this.#wanted = true;
    this.#ask();
  }

  /** Returns the owners of a fact as text, for a cell. */
  said(item) {
    const owners = this.known.get(item.key);
    if (owners) return owners.join(", ");
    return this.isLarge ? "choose the row" : "…";
  }

  /** Returns the claims on one fact. */
  async ofFact(fact) {
    const claims = await this.app.space.request("owners", { pattern: new Record("lit", fact), most: MOST_CLAIMS });
    return claims.map(ownerText);
  }

  async #ask() {
    if (this.#asking || this.#timer || !this.#wanted) return;
    this.#asking = true;
    this.#wanted = false;
    const turn = this.#turn;
    const began = performance.now();
    try {
      const claims = await this.app.space.request("owners", { pattern: this.pattern, most: MOST_CLAIMS });
      if (turn === this.#turn) {
        this.known = new Map();
        for (const claim of claims) {
          const at = String(key(claim.fact));
          const before = this.known.get(at);
          if (before) before.push(ownerText(claim));
          else this.known.set(at, [ownerText(claim)]);
        }
        this.onchange();
      }
    } catch (error) {
      if (turn === this.#turn) this.app.fail(error);
    }
    this.#asking = false;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#ask();
    }, Math.max(PAUSE, SHARE * (performance.now() - began))); // the daemon looks at all claims of the space for it
  }

  stop() {
    this.#turn = Infinity;
    this.#wanted = false;
    clearTimeout(this.#timer);
  }
}
