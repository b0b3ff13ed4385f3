/** Reads the past of a pattern from the log: the state at an epoch, what changed in it, and the epochs beside it. */

import { itemOf, whole } from "./live.js";

const CHANGES = 500;
const STEP = 256;

/** Calls `read(epoch)` with each epoch of a bounded replay, until it returns true; `hold(stream)` gets the stream. */
async function replay(space, pattern, options, read, hold = () => {}) {
  const stream = space.observe(pattern, { quiet: true, parts: true, policy: "wait", ...options });
  hold(stream);
  try {
    for await (const part of stream) if (read(part)) return;
  } finally {
    stream.close();
  }
}

/** Returns the facts that matched at an epoch, `most` of them: `{items, isAll, time}`. */
export async function stateAt(space, pattern, epoch, most, hold) {
  const found = { items: new Map(), isAll: true, time: 0 };
  await replay(
    space,
    whole(pattern),
    { asOf: epoch, upto: epoch },
    ({ added, begins, micros, more }) => {
      if (begins) found.items.clear();
      for (const row of added.slice(0, most - found.items.size)) {
        const item = itemOf(row, { epoch, exact: false, micros: 0 });
        found.items.set(item.key, item);
      }
      found.time = micros;
      found.isAll = !more && found.items.size < most;
      return !more || found.items.size >= most;
    },
    hold,
  );
  return found;
}

/** Returns what an epoch changed, some hundred rows of it: `{changes, more, keys}`; `keys` are those of the added facts. */
export async function changesAt(space, pattern, epoch, hold) {
  const found = { changes: [], more: 0, keys: new Set(), time: 0 };
  if (epoch < 1) return found;
  await replay(
    space,
    whole(pattern),
    { after: epoch - 1, upto: epoch },
    ({ number, added, messages, removed, micros, begins }) => {
      if (begins) found.changes.length = 0;
      found.time = micros;
      for (const [sign, rows] of [["+", added], ["!", messages], ["−", removed]]) {
        for (const row of rows) {
          if (sign === "+") found.keys.add(itemOf(row).key);
          if (found.changes.length < CHANGES) found.changes.push({ sign, fact: row[0], epoch: number, micros });
          else found.more++;
        }
      }
      return false;
    },
    hold,
  );
  return found;
}

/** Returns the next epoch after this one in which the pattern changed; null if there is none. */
export async function changeAfter(space, pattern, epoch, newest) {
  let found = null;
  if (epoch >= newest) return null;
  await replay(space, pattern, { after: epoch, upto: newest, window: 1 }, ({ number }) => {
    found = number;
    return true;
  });
  return found;
}

/** Returns the newest epoch before this one in which the pattern changed; null if the log has none. */
export async function changeBefore(space, pattern, epoch, oldest) {
  let upto = epoch - 1;
  for (let step = STEP; upto >= oldest; step *= 4) {
    const after = Math.max(oldest - 1, upto - step);
    const found = await changeAfter(space, pattern, after, upto);
    if (found !== null) return newestOf(space, pattern, found, upto);
    upto = after;
  }
  return null;
}

/** Returns the newest epoch to `upto` in which the pattern changed; `found` is one. By halves: all changes may be a million rows. */
async function newestOf(space, pattern, found, upto) {
  while (found < upto) {
    const half = Math.floor((found + upto) / 2);
    const later = await changeAfter(space, pattern, half, upto);
    if (later === null) upto = half;
    else found = later;
  }
  return found;
}

/** Returns when a fact came and went, the newest of it first, some hundred times: `{sign, epoch, micros}`. */
export async function historyOf(space, pattern, oldest, newest, hold) {
  const found = [];
  if (newest < oldest) return found;
  await replay(
    space,
    pattern,
    { after: oldest - 1, upto: newest },
    ({ number, micros, added, messages, removed }) => {
      for (const [sign, rows] of [["+", added], ["!", messages], ["−", removed]]) {
        if (rows.length) found.push({ sign, epoch: number, micros });
      }
      if (found.length > 4 * CHANGES) found.splice(0, 3 * CHANGES);
      return false;
    },
    hold,
  );
  return found.reverse().slice(0, CHANGES);
}
