/** The numbers of packets, actions and flags in WIRE.md, and what waits for an answer. */

export const HELLO = 1;
export const TURN = 2;
export const OPEN = 3;
export const ASK = 4;
export const ABORT = 5;
export const REQUEST = 6;
export const PING = 7;
export const PONG = 8;
export const BYE = 9;
export const PRODUCE = 10;
export const WELCOME = 33;
export const ACCEPTED = 34;
export const REFUSAL = 35;
export const VALUES = 36;
export const DONE = 37;
export const ERROR = 38;
export const ANSWER = 39;
export const DENIED = 40;
export const REACHED = 42;

export const ASSERT = 0;
export const RETRACT = 1;
export const SEND = 2;
export const REPLACE = 3;
export const WITHDRAW = 4;
export const PUT = 5;

export const MORE = 1;
export const STATE = 2;
export const CONFLATED = 4;
export const PROGRESS = 8;

/** Codes of a daemon that follows, which has applied no turn of this connection. */
export const FOLLOWING = ["elsewhere", "no-leader", "behind"];
/** Codes with which a daemon sends a client to another one; nothing has happened. */
export const ELSEWHERE = [...FOLLOWING, "moved"];

export const PACKET_DEPTH = 56;
export const SPARE = 4096 * 4 + 256;
export const IN_FLIGHT = 4096;

/** A promise with the functions that settle it; a rejection that nothing awaits is no error of the program. */
export class Deferred {
  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }
}
