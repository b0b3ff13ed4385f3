/**
 * Holds the table of a live map against a plain fold: `node tables.mjs FOLDER`; prints how many programs were run.
 *
 * Every program of three epochs over two keys with two values each is run, from the empty state and from any other one, with every
 * choice of when changes are read, with one row and with many. After each epoch the table has what the fold has, in its order,
 * and the changes that were read lead from one reading to the next. The last step of each is a reconnect to another state.
 */

import { pathToFileURL } from "node:url";

const [, , folder] = process.argv;
const { KeyTable } = await import(pathToFileURL(`${folder}/tables.js`));
const { SeveralRows } = await import(pathToFileURL(`${folder}/errors.js`));

const ROWS = [["a", 1], ["a", 2], ["b", 1], ["b", 2]];
const STATES = Array.from({ length: 16 }, (_, bits) => ROWS.filter((_, at) => bits & (1 << at)));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** What a table is, written without thought of cost. */
class Fold {
  constructor(many) {
    this.many = many;
    this.state = []; // pairs of a key and its rows
    this.seen = []; // the state as it was last read
    this.dirty = new Set(); // keys that have changed since they were read
    this.refused = new Set(); // those of them that were refused, and have not changed since
  }

  rows(key, state = this.state) {
    return state.find(([at]) => at === key)?.[1] ?? [];
  }

  apply({ added, removed }) {
    const next = this.state.map(([key, rows]) => [key, rows.filter((row) => !removed.some((gone) => same(gone, row)))]);
    for (const row of added) {
      const known = next.find(([key]) => key === row[0]);
      if (known) known[1].push(row);
      else next.push([row[0], [row]]);
    }
    this.state = next.filter(([, rows]) => rows.length);
    for (const [key] of [...added, ...removed]) {
      this.dirty.add(key);
      this.refused.delete(key);
    }
  }

  begin() {
    this.dirty.clear();
    this.seen = this.state.filter(([, rows]) => this.many || rows.length === 1);
  }

  read() {
    const readable = (key) => this.many || this.rows(key).length <= 1;
    const refused = [...this.dirty].filter((key) => !this.refused.has(key) && !readable(key));
    for (const key of refused) this.refused.add(key);
    if (refused.length) return "several";
    const changes = [];
    for (const key of [...this.dirty]) {
      if (this.refused.has(key)) continue;
      this.dirty.delete(key);
      const [old, now] = [this.rows(key, this.seen), this.rows(key)];
      this.seen = [...this.seen.filter(([at]) => at !== key), [key, now]];
      if (!same(old, now)) changes.push([key, old, now]);
    }
    return changes.sort();
  }

  shown() {
    if (this.many) return this.state;
    return this.state.some(([, rows]) => rows.length > 1) ? "several" : this.state;
  }
}

const rowsOf = (row) => (row === null ? [] : Array.isArray(row) ? row.map(({ d, n }) => [d, n]) : [[row.d, row.n]]);

function attempt(read) {
  try {
    return read();
  } catch (error) {
    if (error instanceof SeveralRows) return "several";
    throw error;
  }
}

const read = (table) => attempt(() => table.read().map(({ change: { key, old, now } }) => [key, rowsOf(old), rowsOf(now)]).sort());
const shown = (table) => attempt(() => table.entries().map(([key, row]) => [key, rowsOf(row)]));

function check(what, found, expected, program) {
  if (!same(found, expected)) {
    throw new Error(`${what} of ${JSON.stringify(program)}: ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
  }
}

const between = (before, after) => ({
  added: after.filter((row) => !before.some((known) => same(known, row))),
  removed: before.filter((row) => !after.some((known) => same(known, row))),
});

/** Runs one program: a first state, three others, and a mask of the epochs after which changes are read. */
function run(many, states, mask) {
  const program = [many, states, mask];
  const table = new KeyTable(["d", "n"], "d", many);
  const fold = new Fold(many);
  let before = [];
  states.forEach((state, at) => {
    const epoch = at < 3 ? between(before, state) : table.difference(state); // the last one is a reconnect
    if (at === 3) check("the difference", [epoch.added.sort(), epoch.removed.sort()], Object.values(between(before, state)).map((rows) => rows.sort()), program);
    table.apply(epoch);
    fold.apply(epoch);
    if (at === 0) fold.begin();
    check("the state", shown(table), fold.shown(), program);
    check("the keys", table.keys(), fold.state.map(([key]) => key), program);
    if (mask & (1 << at)) check("a reading", read(table), fold.read(), program);
    before = state;
  });
  check("a refused reading", read(table), fold.read(), program);
  check("the last reading", read(table), fold.read(), program);
}

let count = 0;
for (const many of [false, true]) {
  for (const first of STATES) {
    for (const second of STATES) {
      STATES.forEach((third, at) => {
        for (const mask of [0, 2, 4, 6]) run(many, [first, second, third, STATES[15 - at]], mask);
        run(many, [[], first, second, third], 0); // a reconnect from any state to any other
        count += 5;
      });
    }
  }
}
console.log(count);
