/**
 * Holds the table of a live map against a plain fold: `node tables.mjs FOLDER`; prints how many programs were run.
 *
 * Every program of three epochs over two keys with two values each is run, from the empty state and from any other one, with one
 * row and with many, and taking no changes between, one or all. After each epoch the table has what
 * the fold has, in its order, and the changes lead from what was taken to what is. The last step is a reconnect to another state.
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
  constructor() {
    this.state = []; // pairs of a key and its rows
    this.taken = []; // the same of each key when its changes were last taken
  }

  apply({ added, removed }) {
    const next = this.state.map(([key, rows]) => [key, rows.filter((row) => !removed.some((gone) => same(gone, row)))]);
    for (const row of added) {
      const known = next.find(([key]) => key === row[0]);
      if (known) known[1].push(row);
      else next.push([row[0], [row]]);
    }
    this.state = next.filter(([, rows]) => rows.length);
  }

  /** Returns the changes of all keys, or of one of them, and takes them. */
  take(only = "ab") {
    const changes = [...only].map((key) => [key, rowsIn(this.taken, key), rowsIn(this.state, key)]);
    this.taken = [...this.taken.filter(([key]) => !only.includes(key)), ...changes.map(([key, , now]) => [key, now])];
    return changes.filter(([, old, now]) => !same(old, now));
  }
}

const rowsIn = (state, key) => state.find(([at]) => at === key)?.[1] ?? [];
const rowsOf = (row) => (row === null ? [] : Array.isArray(row) ? row.map(({ d, n }) => [d, n]) : [[row.d, row.n]]);
const refused = (many, rows) => (many || rows.length <= 1 ? rows : "several");

function attempt(read) {
  try {
    return read();
  } catch (error) {
    if (error instanceof SeveralRows) return "several";
    throw error;
  }
}

const shownOf = (change) => [change.key, attempt(() => rowsOf(change.old)), attempt(() => rowsOf(change.now))];
const shown = (table) => attempt(() => table.entries().map(([key, row]) => [key, rowsOf(row)]));

/** Takes nothing, one change or all, and holds them against the fold. */
function take(what, table, fold, many, program) {
  if (what === NOTHING) return;
  const single = what === ONE ? table.takeOne() : null;
  const found = what === ALL ? table.take() : single ? [single] : [];
  const expected = fold.take(single?.key);
  check("a taking", found.map(shownOf).sort(), expected.map(([key, old, now]) => [key, refused(many, old), refused(many, now)]), program);
}

const [NOTHING, ONE, ALL] = [0, 1, 2];

function check(what, found, expected, program) {
  if (!same(found, expected)) {
    throw new Error(`${what} of ${JSON.stringify(program)}: ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
  }
}

const between = (before, after) => ({
  added: after.filter((row) => !before.some((known) => same(known, row))),
  removed: before.filter((row) => !after.some((known) => same(known, row))),
});

/** Runs one program: a first state, three others, and what is taken after each of them. */
function run(many, states, taken) {
  const program = [many, states, taken];
  const table = new KeyTable(["d", "n"], "d", many);
  const fold = new Fold();
  let before = [];
  states.forEach((state, at) => {
    const wanted = between(before, state);
    const epoch = at < 3 ? wanted : table.difference(state); // the last one is a reconnect
    for (const name of ["added", "removed"]) check(name, [...epoch[name]].sort(), wanted[name].sort(), program);
    table.apply(epoch);
    fold.apply(epoch);
    if (at === 0) fold.take(); // the first state is no change
    const whole = fold.state.every(([, rows]) => many || rows.length === 1);
    check("the state", shown(table), whole ? fold.state : "several", program);
    check("the keys", table.keys(), fold.state.map(([key]) => key), program);
    take(taken[at] ?? NOTHING, table, fold, many, program);
    before = state;
  });
  take(ALL, table, fold, many, program);
  take(ALL, table, fold, many, program);
}

const TAKEN = [[NOTHING, NOTHING], [ONE, ONE], [ONE, ALL], [ALL, ONE, ONE], [ALL, ALL]];
let count = 0;
for (const many of [false, true]) {
  for (const first of STATES) {
    for (const second of STATES) {
      STATES.forEach((third, at) => {
        for (const taken of TAKEN) run(many, [first, second, third, STATES[15 - at]], [NOTHING, ...taken]);
        run(many, [[], first, second, third], []); // a reconnect from any state to any other
        count += TAKEN.length + 1;
      });
    }
  }
}
console.log(count);
