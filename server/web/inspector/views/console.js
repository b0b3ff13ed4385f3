/**
 * Console: assert, retract and send from the page.
 *
 * What is asserted without an owner belongs to this page, and ends when it is closed. With a durable owner, or a
 * lease, it goes by the daemon's HTTP interface, and stays until it is retracted or the lease ends.
 */

import { DataspaceError, Refused, UsageError, parse, text, toJson } from "../../static/dataspace.js";
import { clip } from "../detail.js";
import { clock, h, replace } from "../dom.js";

const LINES = 200;
const PAST = 100;

const kept = new WeakMap(); // space -> what this page has asserted there, and said: views come and go

export default {
  name: "Console",
  key: "c",
  mount(place, app) {
    const mine = kept.get(app.space) ?? { claims: new Map(), lines: [], past: [] };
    kept.set(app.space, mine);
    const view = new Console(place, app, mine);
    return () => view.end();
  },
};

class Console {
  constructor(place, app, mine) {
    Object.assign(this, { app, mine, at: mine.past.length, over: false });
    this.input = h("textarea", {
      id: "value",
      class: "mono",
      rows: 3,
      spellcheck: "false",
      autocapitalize: "off",
      placeholder: 'present("Alice", "hall")',
      "aria-describedby": "value-said",
      oninput: () => this.#parsed(),
      onkeydown: (event) => this.#key(event),
    });
    this.said = h("p", { class: "note", id: "value-said", role: "status" }, "A value, as TEXT.md has it. Ctrl-Enter asserts it, Alt-↑ and Alt-↓ bring back earlier ones.");
    this.owner = h("input", { id: "owner", class: "mono", type: "text", spellcheck: "false", autocapitalize: "off", placeholder: "empty: this page" });
    this.claims = h("ul", { class: "list", id: "claims" });
    this.lines = h("ul", { class: "list changes", id: "lines" });
    replace(
      place,
      h(
        "form",
        {
          class: "panel stack",
          onsubmit: (event) => {
            event.preventDefault();
            this.#act("assert");
          },
        },
        h("label", { for: "value" }, "Fact or message"),
        this.input,
        this.said,
        h("label", { for: "owner" }, "Owner"),
        this.owner,
        h("p", { class: "note" }, "Without an owner, a fact is there for as long as this page is open. With the name of a durable owner it stays until it is retracted; lease:60000:NAME ends a minute after its last turn."),
        h(
          "p",
          { class: "buttons" },
          h("button", { type: "submit", class: "primary", id: "assert" }, "Assert"),
          h("button", { type: "button", id: "retract", onclick: () => this.#act("retract") }, "Retract"),
          h("button", { type: "button", id: "send", onclick: () => this.#act("send") }, "Send as a message"),
        ),
      ),
      h("section", { class: "panel" }, h("h2", {}, "Facts of this page"), this.claims),
      h("section", { class: "panel" }, h("h2", {}, "What was done"), this.lines),
    );
    this.#drawClaims();
    this.#drawLines();
  }

  end() {
    this.over = true;
  }

  #parsed() {
    try {
      const value = parse(this.input.value.trim());
      this.input.removeAttribute("aria-invalid");
      this.said.className = "note";
      this.said.textContent = "";
      return [value];
    } catch (error) {
      this.input.setAttribute("aria-invalid", "true");
      this.said.className = "bad";
      this.said.textContent = error.text ?? error.message;
      return null;
    }
  }

  #key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.#act("assert");
    } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      this.at = Math.max(0, Math.min(this.mine.past.length, this.at + (event.key === "ArrowUp" ? -1 : 1)));
      this.input.value = this.mine.past[this.at] ?? "";
      this.#parsed();
    }
  }

  async #act(verb) {
    const found = this.#parsed();
    if (!found) return;
    const [value] = found;
    const said = this.input.value.trim();
    const { past } = this.mine;
    if (past.at(-1) !== said) past.push(said);
    past.splice(0, past.length - PAST);
    this.at = past.length;
    const owner = this.owner.value.trim();
    try {
      const epoch = owner ? await this.#byHttp(verb, value, owner) : await this.#here(verb, value);
      this.#line(WORDS[verb], value, epoch, owner);
    } catch (error) {
      this.#failed(verb, value, error);
    }
  }

  /** Acts in the name of this page; returns the epoch. */
  async #here(verb, value) {
    if (verb === "send") return this.app.space.send(value);
    if (verb === "retract") {
      const at = [...this.mine.claims].findLast(([, claim]) => text(claim.value) === text(value));
      if (!at) throw new UsageError("this page does not assert it: name the owner that does");
      return this.#retract(at[0]);
    }
    let claim;
    const epoch = await this.app.space.turn((draft) => {
      claim = draft.assert(value);
    });
    this.mine.claims.set(claim.handle, claim);
    this.#drawClaims();
    return epoch;
  }

  async #retract(handle) {
    const epoch = await this.mine.claims.get(handle).retract();
    this.mine.claims.delete(handle);
    this.#drawClaims();
    return epoch;
  }

  /** Acts in the name of a durable owner or a lease, by a request; returns the epoch. */
  async #byHttp(verb, value, owner) {
    const { spaceName, token } = this.app;
    const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const body = JSON.stringify({ owner, actions: [{ [verb]: toJson(value) }] });
    const url = new URL(`../../v1/spaces/${encodeURIComponent(spaceName)}/turns`, import.meta.url);
    const answer = await fetch(url, { method: "POST", headers, body });
    const said = await answer.json();
    if (!answer.ok) throw new Refused(said.code ?? "", said.detail ?? answer.statusText);
    return said.epoch;
  }

  #failed(verb, value, error) {
    if (this.over) return;
    this.#line(`could not ${verb}`, value, null, "", error.text ?? error.message);
    if (!(error instanceof DataspaceError)) this.app.fail(error);
  }

  #line(what, value, epoch, owner = "", why = "") {
    this.mine.lines.unshift({ what, value, epoch, owner, why, time: Date.now() });
    this.mine.lines.splice(LINES);
    this.#drawLines();
  }

  #drawClaims() {
    if (this.over) return;
    const items = [...this.mine.claims].map(([handle, claim]) =>
      h(
        "li",
        { "data-claim": handle },
        h("span", { class: "mono" }, clip(text(claim.value))),
        " ",
        h(
          "button",
          {
            type: "button",
            "aria-label": `Retract ${clip(text(claim.value))}`,
            onclick: async () => {
              try {
                this.#line(WORDS.retract, claim.value, await this.#retract(handle));
              } catch (error) {
                this.#failed("retract", claim.value, error);
              }
            },
          },
          "Retract",
        ),
      ),
    );
    replace(this.claims, items.length ? items : h("li", { class: "note" }, "None. They end with this page."));
  }

  #drawLines() {
    if (this.over) return;
    const items = this.mine.lines.map(({ what, value, epoch, owner, why, time }) =>
      h(
        "li",
        { "data-done": why ? "refused" : "done" },
        h("span", { class: "at" }, clock(new Date(time))),
        h("span", { class: why ? "bad" : "good" }, what),
        h("span", {}, clip(text(value)), owner ? ` as ${owner}` : "", why ? ` – ${why}` : ` in epoch ${epoch}`),
      ),
    );
    replace(this.lines, items.length ? items : h("li", { class: "note" }, "Nothing yet."));
  }
}

const WORDS = { assert: "asserted", retract: "retracted", send: "sent" };
