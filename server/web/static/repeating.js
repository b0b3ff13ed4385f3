/**
 * Which requests are sent again when the connection is lost before their answer: as `dataspace/client/session/repeating.py`.
 *
 * The daemon may have carried the lost request out, so it is sent again only where twice is as good as once. The caller of
 * any other one gets `Broken`, which says that it may have taken effect.
 */

const READS = [
  ...["sync", "status", "frontier", "within", "who", "owners", "index", "actors", "sessions"],
  ...["groups", "lookup", "prepare", "topic-frontier", "topic-epochs", "topic-number"],
];
const SAME = [
  ...["lease", "renew", "release", "withdraw", "acknowledge", "topic-acknowledge", "discard", "erase", "publish", "join"],
];
const SET = ["pause", "resume", "alter"];

/** Returns whether a request changes something, and whether twice has the effect of once. */
export function repetition(verb, args) {
  const changes = !READS.includes(verb) && !(verb === "rules" && args?.ask !== "resume");
  const isSafe = !changes || SAME.includes(verb) || verb === "rules" || (verb === "group-alter" && SET.includes(args?.what));
  return { changes, isSafe };
}
