/**
 * A grid of many rows, of which only those in sight are elements.
 *
 * `table({columns, row, key, …})` returns `{element, set, update, dispose}`. Rows are drawn once an animation
 * frame at most, however often they change, and what is beyond `most` is left out and said.
 */

import { frame, h, number, replace, visible } from "./dom.js";

export const HEIGHT = 24;
export const MOST = 100_000;

const SPARE = 4;
const SORT_MILLIS = 1000;
const QUICK_SORT = 5000;

let tables = 0;

/**
 * Returns a table.
 *
 * `columns` are `{title, width?, align?, sort?}`: `width` is `minmax(7rem, 1fr)` or another that states its least in
 * rem, `sort(item)` returns what rows are put in order by; `row(item)`
 * returns a cell for each (text, a node, or `{text, class}`), `key(item)` what tells items apart. `label` names the grid,
 * `onpick(item)` is called with the row that is chosen, `empty` is said where there is none. `rowName(item)` is what
 * `data-row-key` has instead of the key, `rowClass(item)` a class of its row.
 */
export function table({ columns, row, key, label = "Rows", onpick = null, empty = "nothing", most = MOST, rowName = null, rowClass = null }) {
  const name = `grid-${++tables}`;
  let items = new Map();
  let order = null;
  let leftOut = 0;
  let sorting = null;
  let sorted = 0;
  let timer = 0;
  let active = -1; // where the cursor is
  let activeKey = null; // and on which row: the cursor follows it; null once that has gone
  let picked;
  const fresh = new Map();
  const pool = [];

  const head = h("div", { class: "grid-head", role: "row", "aria-rowindex": 1 });
  const rows = h("div", { class: "grid-rows", role: "rowgroup" });
  const nothing = h("p", { class: "grid-empty" }, empty);
  const body = h(
    "div",
    {
      class: "grid",
      role: "grid",
      tabindex: 0,
      "aria-label": label,
      "aria-colcount": columns.length,
      onscroll: () => draw(),
      onkeydown: onKey,
      onclick: onClick,
    },
    h("div", { class: "grid-inner", role: "presentation" }, h("div", { role: "rowgroup" }, head), rows),
    nothing,
  );
  const note = h("p", { class: "note grid-note", hidden: true });
  const element = h("div", { class: "table" }, body, note);
  const resized = new ResizeObserver(() => draw());
  resized.observe(body);

  setColumns(columns);

  const draw = frame(() => {
    const all = ordered();
    const count = all.length;
    follow(all);
    nothing.hidden = count > 0;
    body.setAttribute("aria-rowcount", count + 1);
    rows.style.height = `${count * HEIGHT}px`;
    element.style.setProperty("--rows", count);
    const first = Math.max(0, Math.min(Math.floor(body.scrollTop / HEIGHT) - SPARE, count - 1));
    const shown = Math.min(count - first, Math.ceil(body.clientHeight / HEIGHT) + 2 * SPARE);
    while (pool.length < shown) pool.push(newRow());
    const now = performance.now();
    pool.forEach((element, at) => {
      element.hidden = at >= shown;
      if (at < shown) fill(element, all[first + at], first + at, now);
    });
    for (const [at, since] of fresh) if (now - since > 2000) fresh.delete(at);
    const there = activeKey === null ? null : pool.find((each) => !each.hidden && each.index === active);
    if (there) body.setAttribute("aria-activedescendant", there.id);
    else body.removeAttribute("aria-activedescendant");
    note.hidden = !leftOut;
    if (leftOut) replace(note, `${number(leftOut)} more rows are left out: this table holds ${number(most)} at most`);
  });

  /** Moves the cursor to where its row is now. */
  function follow(all) {
    if (activeKey === null || all[active]?.[0] === activeKey) return;
    const found = items.has(activeKey) ? all.findIndex(([at]) => at === activeKey) : -1;
    if (found >= 0) active = found;
    else activeKey = null;
  }

  function newRow() {
    const made = h("div", { class: "grid-row", role: "row", id: `${name}-${pool.length}` });
    rows.append(made);
    return made;
  }

  function fill(element, entry, index, now) {
    const [at, item] = entry;
    if (element.index !== index) {
      element.index = index;
      element.style.transform = `translateY(${index * HEIGHT}px)`;
      element.setAttribute("aria-rowindex", index + 2);
    }
    const isPicked = picked !== undefined && at === picked;
    element.classList.toggle("active", at === activeKey);
    element.setAttribute("aria-selected", String(isPicked));
    if (element.item !== item) {
      element.item = item;
      element.dataset.rowKey = rowName ? rowName(item) : String(at);
      const wanted = rowClass?.(item) ?? "";
      if (element.wanted) element.classList.remove(element.wanted);
      if (wanted) element.classList.add(wanted);
      element.wanted = wanted;
      const cells = row(item);
      replace(element, ...columns.map((column, each) => cell(column, cells[each])));
      element.classList.remove("fresh");
    }
    const since = fresh.get(at);
    const isFresh = since !== undefined && now - since < 2000;
    if (!isFresh) element.classList.remove("fresh");
    else if (element.since !== since || !element.classList.contains("fresh")) {
      element.since = since;
      element.classList.remove("fresh");
      void element.offsetWidth; // begins the animation anew
      element.classList.add("fresh");
    }
  }

  function cell(column, content) {
    const plain = content !== null && typeof content === "object" && !(content instanceof Node);
    const said = plain ? content.text : content;
    const made = h("div", { role: "gridcell", class: [column.align, plain ? content.class : ""].filter(Boolean).join(" ") || null });
    if (said instanceof Node) made.append(said);
    else {
      made.textContent = visible(String(said ?? ""));
      if (said) made.title = made.textContent;
    }
    return made;
  }

  function setColumns(wanted) {
    columns = wanted;
    body.setAttribute("aria-colcount", columns.length);
    const widths = columns.map(({ width }) => width ?? "minmax(7rem, 1fr)");
    const least = widths.map((each) => parseFloat(/[\d.]+(?=rem)/.exec(each)?.[0] ?? "5"));
    body.style.setProperty("--columns", widths.join(" "));
    body.style.setProperty("--least", `${least.reduce((sum, each) => sum + each, 0)}rem`);
    replace(head, ...columns.map(title));
    for (const each of pool) each.item = undefined;
  }

  function title(column, at) {
    const made = h("div", { role: "columnheader", class: column.align ?? null, "data-column": column.title, title: column.title });
    if (!column.sort) made.textContent = column.title;
    else {
      made.setAttribute("aria-sort", sorting?.at === at ? (sorting.up ? "ascending" : "descending") : "none");
      made.append(h("button", { type: "button", onclick: () => sortBy(at) }, column.title));
    }
    return made;
  }

  function sortBy(at) {
    sorting = sorting?.at === at ? (sorting.up ? { at, up: false } : null) : { at, up: true };
    order = null;
    sorted = 0;
    setColumns(columns);
    head.children[at].querySelector("button").focus();
    draw();
  }

  /** Returns the rows in their order; large tables are put in order anew once a second at most. */
  function ordered() {
    if (order) return order;
    const now = performance.now();
    const all = [...items];
    if (sorting && columns[sorting.at]?.sort) {
      const { sort } = columns[sorting.at];
      if (all.length > QUICK_SORT && sorted && now - sorted < SORT_MILLIS) {
        timer ||= setTimeout(() => {
          timer = 0;
          order = null;
          draw();
        }, SORT_MILLIS - (now - sorted));
        return (order = (ordered.last ?? all).filter(([at]) => items.has(at)).map(([at]) => [at, items.get(at)]));
      }
      sorted = now;
      const by = all.map((entry) => [sort(entry[1]), entry]);
      const way = sorting.up ? 1 : -1;
      by.sort(([one], [other]) => way * compare(one, other));
      order = ordered.last = by.map(([, entry]) => entry);
    } else order = all;
    return order;
  }

  function onClick(event) {
    const found = event.target.closest(".grid-row");
    if (!found || event.target.closest("button, a")) return;
    active = found.index;
    activeKey = String(key(found.item));
    pick(found.item);
  }

  function pick(item) {
    picked = String(key(item));
    draw();
    onpick?.(item);
  }

  function onKey(event) {
    if (event.target !== body || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = ordered();
    const count = all.length;
    follow(all);
    const page = Math.max(1, Math.floor(body.clientHeight / HEIGHT) - 2);
    const to = {
      ArrowDown: active + 1,
      ArrowUp: active < 0 ? count - 1 : active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (to !== undefined && count) {
      event.preventDefault();
      active = Math.max(0, Math.min(to, count - 1));
      activeKey = all[active][0];
      scrollTo(active);
      draw();
    } else if (event.key === "Enter" && activeKey !== null) {
      event.preventDefault();
      pick(items.get(activeKey));
    }
  }

  function scrollTo(index) {
    const top = index * HEIGHT;
    const height = body.clientHeight - head.offsetHeight;
    if (top < body.scrollTop) body.scrollTop = top;
    else if (top + HEIGHT > body.scrollTop + height) body.scrollTop = top + HEIGHT - height;
  }

  return {
    element,
    /** Shows these items instead, without marking them as changed. */
    set(wanted) {
      items = new Map();
      leftOut = 0;
      for (const item of wanted) {
        if (items.size < most) items.set(String(key(item)), item);
        else leftOut++;
      }
      fresh.clear();
      order = null;
      draw();
    },
    /** Takes changes, a map from keys to items, or `null` for those that have gone; marks what is new. */
    update(changes, { mark = true } = {}) {
      const now = performance.now();
      for (const [at, item] of changes) {
        const known = String(at);
        if (item === null) items.delete(known);
        else if (items.has(known) || items.size < most) {
          items.set(known, item);
          if (mark) fresh.set(known, now);
        } else leftOut++;
      }
      order = null;
      draw();
    },
    /** Gives the table other columns. */
    columns: (wanted) => {
      sorting = null;
      setColumns(wanted);
      order = null;
      draw();
    },
    /** Draws all rows again: what `row` says of the same items has changed. */
    redraw() {
      for (const each of pool) each.item = undefined;
      draw();
    },
    get size() {
      return items.size;
    },
    dispose() {
      draw.stop();
      clearTimeout(timer);
      resized.disconnect();
      element.remove();
    },
  };
}

function compare(one, other) {
  if (typeof one === typeof other && one !== null && other !== null) return one < other ? -1 : one > other ? 1 : 0;
  return String(one ?? "").localeCompare(String(other ?? ""));
}
