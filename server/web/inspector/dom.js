/**
 * Elements, and how numbers are written: what all views are made with.
 *
 * Text is always a text node, never HTML: what a fact says cannot become a part of the page.
 */

/** Returns a new element; `on…` attributes are listeners, `null`, `false` and `undefined` ones are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : SEEN.has(name) ? visible(String(value)) : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** Puts children in the place of those that an element has. */
export function replace(place, ...children) {
  place.replaceChildren(...nodes(children));
}

function nodes(children) {
  const there = children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false && each !== true);
  return there.map((each) => (each instanceof Node ? each : visible(String(each))));
}

const SEEN = new Set(["title", "aria-label", "placeholder"]);
const DECEIVING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Returns a text with characters that are not seen, or turn its direction, as their numbers: `\u202e`. */
export function visible(said) {
  return said.replace(DECEIVING, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Returns a function that has `draw` called once with the next animation frame, however often it is called itself. */
export function frame(draw) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
  ask.stop = () => {
    cancelAnimationFrame(asked);
    asked = 0;
  };
  return ask;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Returns a number with its thousands apart: `12,345`, `1.5`. */
export function number(n) {
  if (n === null || n === undefined) return "–";
  const value = typeof n === "bigint" ? n : Number(n);
  return typeof value === "number" && Math.abs(value) < 100 ? TENTHS.format(value) : WHOLE.format(value);
}

/** Returns a size: `1.5 MiB`. */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  let value = Number(n);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(value) < 1024) return `${unit === "B" || value >= 100 ? WHOLE.format(value) : TENTHS.format(value)} ${unit}`;
    value /= 1024;
  }
  return `${TENTHS.format(value)} TiB`;
}

/** Returns the milliseconds since 1970 of a `Date`, a `Time`, or microseconds. */
export function millis(time) {
  if (time instanceof Date) return time.getTime();
  if (typeof time?.toDate === "function") return time.toDate().getTime();
  return Number(time) / 1000;
}

/** Returns how long ago a time was: `3 s ago`, `2 h ago`. */
export function ago(time, now = Date.now()) {
  return `${span(Math.max(0, now - millis(time)))} ago`;
}

/** Returns a length of time, given in milliseconds: `250 ms`, `3 s`, `2 d`. */
export function span(length) {
  if (length < 1000) return `${Math.round(length)} ms`;
  for (const [unit, size, next] of [["s", 1000, 120], ["min", 60_000, 120], ["h", 3_600_000, 48]]) {
    if (length < size * next) return `${Math.floor(length / size)} ${unit}`;
  }
  return `${Math.floor(length / 86_400_000)} d`;
}

/** Returns the time of day, with the date if it is not today's: `14:03:22`. */
export function clock(time) {
  const date = new Date(millis(time));
  if (!Number.isFinite(date.getTime()) || date.getTime() <= 0) return "";
  const said = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? said : `${date.toLocaleDateString("en-CA")} ${said}`;
}
