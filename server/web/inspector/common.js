/** What views about a running daemon have in common: rows that are followed, panels, and text of values. */

import { capture, key, parse, record, text } from "../static/dataspace.js";
import { PACE } from "./live.js";
import { frame, h, number, replace, visible } from "./dom.js";

export const MOST_ROWS = 5000;
const LONGEST = 400;

/**
 * Follows what matches a pattern: returns `{rows, end, size, leftOut}`, where `rows` is a map from keys to rows of captures.
 *
 * `changed(epoch)` is called once an animation frame at most. The stream asserts no interest, so looking is not seen.
 * Beyond `most` rows the later ones are counted and not kept. What the token may not observe is told to `refused`, if there is one.
 */
export function follow(app, space, pattern, changed, { most = MOST_ROWS, refused = null } = {}) {
  const rows = new Map();
  const beyond = new Set();
  const draw = frame(changed);
  const stream = space.observe(pattern, { quiet: true, pace: PACE });
  let over = false;
  (async () => {
    try {
      for await (const { state, added, removed } of stream) {
        if (over) return;
        if (state) {
          rows.clear();
          beyond.clear();
        }
        for (const row of removed) if (!rows.delete(key(row))) beyond.delete(key(row));
        for (const row of added) {
          if (rows.size < most) rows.set(key(row), row);
          else if (beyond.size < 20 * most) beyond.add(key(row));
        }
        draw();
      }
    } catch (error) {
      if (over) return;
      if (refused && error.code === "not-allowed") refused(error);
      else app.fail(error);
    }
  })();
  return {
    rows,
    get leftOut() {
      return beyond.size;
    },
    end() {
      over = true;
      draw.stop();
      stream.close();
    },
  };
}

/**
 * Calls `begin` at once where the token may observe everything; else shows a button for it beside `why`.
 *
 * What a token is refused is a line of the audit log, so a page that is only opened tries nothing of the kind.
 */
export function ifObserved(app, place, why, begin) {
  if (app.may("observe")) return begin();
  const button = h("button", { type: "button", onclick: () => (replace(place), begin()) }, "Try");
  replace(place, h("span", { class: "note" }, `${why} `), button);
  place.hidden = false;
  return undefined;
}

/** Returns the pattern that captures whole facts with a label, or that match a pattern. */
export const facts = (pattern) => capture("fact", { sub: pattern });
export const labelled = (label) => facts(record(label));

/** Returns the text of a value, cut where it is very long. */
export function said(value) {
  const whole = text(value);
  return whole.length > LONGEST ? `${whole.slice(0, LONGEST)}…` : whole;
}

/** Returns what a field says as a fact or pattern, `null` if it is empty; what cannot be read is told in `place`: `undefined`. */
export function read(input, place) {
  const given = input.value.trim();
  try {
    const value = given ? parse(given) : null;
    input.removeAttribute("aria-invalid");
    return value;
  } catch (error) {
    input.setAttribute("aria-invalid", "true");
    replace(place, h("span", { class: "bad" }, `✗ ${error.text ?? error.message}`));
    place.hidden = false;
    return undefined;
  }
}

/** Returns a panel with a title, and more beside the title. */
export function panel(title, { id, more = null, of = "" } = {}, ...children) {
  return h("section", { class: `panel ${of}`, id, "aria-label": title }, h("h2", {}, title, more), ...children);
}

/** Returns a list of terms and what is said of them; entries without a value are left out. */
export function about(entries) {
  const there = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "about" }, ...there.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** Returns the sentence that says how many are left out, or nothing. */
export const leftOut = (count, what, most) => (count > 0 ? `${number(count)} more ${what} are left out: ${number(most)} are shown at most.` : "");

/** Puts text in an element, if it is other than what is there. */
export function write(element, words) {
  const shown = visible(words);
  if (element.textContent !== shown) element.textContent = shown;
  element.hidden = !words;
}

/** Runs what a button or form asks for, and shows what went wrong. */
export function attempt(app, ask) {
  return async (event) => {
    event?.preventDefault?.();
    try {
      await ask(event);
    } catch (error) {
      app.fail(error);
    }
  };
}

export { h, number, replace };
