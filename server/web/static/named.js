/**
 * Questions about a daemon: they are asked of the daemon that the client has named, also after it has sent the client on
 * to its leader. The rules are those of the client in Python (`dataspace/client/session/named.py`).
 *
 * Always: `drain` and `end-session` reach no daemon that the client has not named, and none twice.
 */

import { Broken, NotNamed, UsageError } from "./errors.js";
import { Session } from "./session.js";

const OF_DAEMON = new Set(["index", "actors", "sessions", "end-session", "drain"]);
const ACTS = new Set(["end-session", "drain"]);
const ALONE = { here: true, reads: true, reconnect: false, client: "", owner: "", grace: 0, lease: 0, onConnection: undefined };

/** Returns whether a verb is asked of the daemon that the client has named; `status` says which one serves the session. */
export const isOfDaemon = (verb) => OF_DAEMON.has(verb);

/** Sends a request about the daemon and returns its answer; of several daemons, that of the one it is connected to. */
export async function askNamed(session, verb, args) {
  const { listed } = session.uplink.candidates;
  if (listed.length > 1) {
    if (!ACTS.has(verb)) return session.request(verb, args);
    throw new UsageError(`${verb} is about one daemon, and this client names ${listed.length}: connect to that one alone`);
  }
  try {
    return await session.requestNamed(verb, args);
  } catch (error) {
    if (!(error instanceof NotNamed)) throw error;
    if (error.sent && ACTS.has(verb)) throw new Broken(`${error.text}; whether ${verb} was carried out is not known`);
  }
  const apart = new Session(listed, { ...session.options, ...ALONE });
  await apart.enter();
  try {
    return await apart.request(verb, args);
  } finally {
    await apart.close();
  }
}
