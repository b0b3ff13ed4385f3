/** Carries the cases of `live.json` out with a daemon, and prints what was seen: `node live.mjs MODULE URL FILE`. */

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , module, url, file] = process.argv;
const { compare, connect, parse, SeveralRows, text } = await import(pathToFileURL(module));

/** Returns a row, or the rows of a key, as text; null stands for none. */
const shown = (row) => (row === null ? null : Array.isArray(row) ? row.map(shown) : text(Object.values(row)));

/** Returns what a function returns, `"several"` where that is refused. */
function readable(read) {
  try {
    return read();
  } catch (error) {
    if (error instanceof SeveralRows) return "several";
    throw error;
  }
}

/** Returns what has changed until now: nothing waits here. */
async function changesOf(map) {
  const nothing = (error) => (error.name === "TimedOut" ? [] : Promise.reject(error));
  const changes = await map.changed({ timeout: 1 }).catch(nothing);
  return changes.map((change) => [text(change.key), readable(() => shown(change.old)), readable(() => shown(change.now))]);
}

async function play({ pattern, by, many = false, sort, steps }) {
  const space = await connect(url);
  const claims = new Map();
  const options = { many, sort: sort ? (one, other) => compare(one[sort], other[sort]) : null };
  const map = await space.live(pattern, by, options).ready;
  const seen = [];
  for (const { turn, rows, changes } of steps) {
    const fill = (draft) => {
      for (const [verb, said] of turn) {
        if (verb === "assert") claims.set(said, draft.assert(parse(said)));
        else if (verb === "retract") draft.retract(claims.get(said));
        else draft.send(parse(said));
      }
    };
    await map.at(await space.turn(fill));
    const step = { turn };
    if (rows) step.rows = readable(() => [...map].map(([key, row]) => [text(key), shown(row)]));
    if (changes) step.changes = await changesOf(map);
    seen.push(step);
  }
  await space.close();
  return seen;
}

const results = [];
for (const each of JSON.parse(readFileSync(file)).cases) results.push(await play(each));
console.log(JSON.stringify(results));
