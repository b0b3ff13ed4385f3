/**
 * Which requests are sent again when the connection is lost before their answer: as `dataspace/wire/verbs.py`.
 *
 * The daemon may have carried the lost request out, so it is sent again only where twice is as good as once. The caller of
 * any other one gets `Broken`, which says that it may have taken effect.
 *
 * A daemon that does not reach the database of its store says so (`store-away`): after a pause streams are opened again, and
 * such requests are sent again.
 */

import { DataspaceError } from "./errors.js";

const STORE_AWAY = "store-away";
const AWAY_MILLIS = 250;

/** Waits before the next attempt if an error says that the store is away; returns false for any other error. */
export async function waitedForStore(error) {
  if (error.code !== STORE_AWAY) return false;
  await new Promise((resolve) => setTimeout(resolve, AWAY_MILLIS));
  return true;
}

const READS = [
  ...["sync", "status", "frontier", "within", "who", "owners", "index", "actors", "sessions"],
  ...["groups", "peek", "lookup", "prepare", "topic-frontier", "topic-epochs", "topic-number"],
];
const SAME = [
  ...["lease", "renew", "release", "withdraw", "acknowledge", "topic-acknowledge", "discard", "erase", "publish", "join"],
  "cluster",
];
const SET = ["pause", "resume", "alter"];

/** Returns whether a request changes something, and whether twice has the effect of once. */
export function repetition(verb, args) {
  const changes = !READS.includes(verb) && !(verb === "rules" && args?.ask !== "resume");
  const isSafe = !changes || SAME.includes(verb) || verb === "rules" || (verb === "group-alter" && SET.includes(args?.what));
  return { changes, isSafe };
}

/** Ends a stream with the error of the daemon, or opens it again after the last epoch that came, as after a lost connection. */
export async function failOrReopen(session, stream, refusal) {
  const before = session.welcome;
  if (!(await waitedForStore(refusal))) return stream.fail(refusal);
  if (!session.isOpen) return stream.fail(session.ended);
  const now = session.welcome;
  try {
    stream.reopen(session.nextStream++, now === before, now.space !== before.space);
  } catch (error) {
    if (!(error instanceof DataspaceError)) throw error;
    stream.fail(error);
  }
}
