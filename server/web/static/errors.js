/** Errors: what the daemon refused, and what this program did wrong. */

/** The base of all errors here; `code` is one of the wire's, or empty, `url` the address to ask instead. */
export class DataspaceError extends Error {
  constructor(code, text, url = "") {
    super(code ? `${code}: ${text}` : text);
    this.code = code;
    this.text = text;
    this.url = url;
    this.name = new.target.name;
  }
}

/** The daemon refused a turn, a stream or a request, and nothing of it has happened. */
export class Refused extends DataspaceError {}

/** The turn did not happen: something that it expected does not hold. */
export class ExpectationFailed extends Refused {
  constructor(code, text, found) {
    super(code, text);
    this.found = found;
  }

  /** Which of the expectations it is, from 1 on. */
  get number() {
    return this.found.expectation;
  }

  /** The first captures that were found instead. */
  get rows() {
    return this.found.rows;
  }

  /** How many there are. */
  get count() {
    return this.found.count;
  }

  /** The epoch of the change to what was to be unchanged; 0 for other expectations. */
  get epoch() {
    return this.found.epoch;
  }
}

/** A job is no longer this member's, or is done already: the turn or the request did not happen. */
export class DeliveryLost extends Refused {
  constructor(code, text, found) {
    super(code, text);
    this.found = found;
  }

  /** Epoch and position of each of them. */
  get lost() {
    return this.found?.lost ?? [];
  }
}

/** Nothing came within the time that was given. */
export class TimedOut extends DataspaceError {
  constructor(text) {
    super("", text);
  }
}

/** One side broke the protocol, or the daemon ended the session; the client does not reconnect. */
export class ProtocolError extends DataspaceError {}

/** This program used a function in a way that has no meaning. */
export class UsageError extends DataspaceError {
  constructor(text) {
    super("", text);
  }
}

/** A key of a live map has several rows, and the map was not made with `many`. */
export class SeveralRows extends UsageError {}

/** Nothing answers at the address. */
export class Unreachable extends UsageError {}

/** The connection was lost before the answer. */
export class Broken extends UsageError {}

/** A daemon that follows another one got a request: nothing has happened, and it is asked again elsewhere. */
export class DeniedHere extends Broken {}

/** A request about the daemon that the client has named has no answer from it; `sent` if it may have been carried out. */
export class NotNamed extends Broken {
  constructor(text, sent) {
    super(text);
    this.sent = sent;
  }
}

/** The space was closed by this program. */
export class Closed extends UsageError {}

/** The client reconnected to another space, for which a turn without an answer was not meant. */
export class AnotherSpace extends UsageError {}

/** Returns the error for bytes that are no value, or no packet. */
export const malformed = (said) => new ProtocolError("malformed", said);

/** Returns options with their defaults; throws `UsageError` for one that there is not. */
export function optionsOf(defaults, given) {
  if (typeof given !== "object" || given === null) throw new UsageError(`options are an object, not ${given}`);
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(defaults, name)) {
      throw new UsageError(`no option ${name}, there are ${Object.keys(defaults).join(", ") || "none"}`);
    }
  }
  const known = Object.entries(given).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(known) };
}

/** Throws `UsageError` for options of a function that has none: what a caller expects of them would not be done. */
export const noOptions = (more) => more.forEach((options) => optionsOf({}, options));

/** Returns the error for a refusal; `found` is there where something expected did not hold, or a job was lost. */
export function refusalOf(code, text, found, url) {
  if (code === "expectation" && found) return new ExpectationFailed(code, text, found);
  return code === "not-yours" ? new DeliveryLost(code, text, found) : new Refused(code, text, url);
}

/** Returns an error of the same kind for another place where it is thrown. */
export const again = (error) =>
  error instanceof UsageError || error instanceof TimedOut
    ? new error.constructor(error.text)
    : new error.constructor(error.code, error.text, error.found ?? error.url);
