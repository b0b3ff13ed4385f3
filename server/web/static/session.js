/** The session: one connection after another, and what is under way between this client and its daemon. */

import { again, AnotherSpace, Broken, Closed, DataspaceError, ProtocolError } from "./errors.js";
import { DeniedHere, NotNamed, Refused, refusalOf, Unreachable } from "./errors.js";
import { addressesOf, Candidates } from "./candidates.js";
import { pack } from "./packing.js";
import { unpack } from "./unpacking.js";
import { randomHex } from "./text.js";
import { ABORT, ACCEPTED, ANSWER, BYE, Deferred, DENIED, DONE, ELSEWHERE, ERROR, FOLLOWING, HELLO, IN_FLIGHT } from "./packets.js";
import { OPEN, PACKET_DEPTH, PING, PONG, PRODUCE, REACHED, REFUSAL, REQUEST, VALUES } from "./packets.js";
import { Heartbeat } from "./heartbeat.js";
import { InFlight } from "./inflight.js";
import { Lease } from "./leases.js";
import { DRAIN_MILLIS, LASTING_MILLIS, Patience, PATIENT } from "./patience.js";
import { failOrReopen, repetition, waitedForStore } from "./repeating.js";
import { checkWebSocket, webSocket } from "./transport.js";
import { CONNECT_MILLIS, CROWDED, Uplink } from "./uplink.js";

/** What is under way between this client and its daemon, over one connection after another. */
export class Session {
  constructor(url, options) {
    if (!options.transport) checkWebSocket(); // else each attempt would fail
    this.options = options;
    this.uplink = new Uplink(new Candidates(addressesOf(url), options.reads, options.here), options.transport ?? webSocket, {
      isOpen: () => this.isOpen,
      isCurrent: (link) => this.link === link,
      isBehind: (space, epoch) => this.welcome?.space === space && epoch < this.newestSeen,
      hello: () => this.#hello(),
      begin: (link, packet) => this.#begin(link, packet),
      hear: (bytes, began) => this.#hear(bytes, began),
      lost: (reason, began) => this.#lost(reason, began),
    });
    this.client = options.client || `~${randomHex(16)}`;
    this.home = options.space === "system" ? "main" : options.space;
    this.inFlight = new InFlight(options.space, options.lease ? options.owner : "", (bytes) => this.#write(bytes));
    this.lease = options.lease ? new Lease(this, options.owner, options.lease) : null;
    this.lasting = new Set(); // what is told of a reconnect; each adds and removes itself
    this.streams = new Map();
    this.requests = new Map();
    this.welcome = null;
    this.reconnects = 0;
    this.returned = null; // what is to be said of a reconnect when the claims hold again
    this.process = crypto.getRandomValues(new Uint8Array(8));
    this.attempts = 0;
    this.nextStream = this.nextRequest = 1;
    this.dropped = [];
    this.ticket = null;
    this.link = null;
    this.up = false;
    this.ended = null;
    this.dismissal = null;
    this.waiters = [];
    this.room = [];
    this.heartbeat = new Heartbeat(
      (now, isIdle) => {
        if (isIdle) this.send([PING, 0]);
        this.lease?.beat(now);
      },
      (reason, heard) => {
        const { link } = this;
        this.#lost(reason, heard - LASTING_MILLIS - 1);
        link?.close();
      },
    );
    this.patience = new Patience(this.uplink.candidates.listed.join(","), options.timeout);
    this.failures = 0; // connections in a row that have not lasted
    this.isElsewhere = false; // the daemon has said that it follows, and so takes no turns
    this.seen = this.seenBefore = 0; // the newest epoch of this space: now, and when this connection began
  }

  /** The address of the connection, or of the last attempt. */
  get url() {
    return this.uplink.url;
  }

  get isOpen() {
    return this.ended === null;
  }

  /** The newest epoch that was seen, also on streams that are open. */
  get newestSeen() {
    const open = this.options.space === "system" ? [] : [...this.streams.values()].map((stream) => stream.seen ?? 0);
    return Math.max(this.seen, ...open);
  }

  checkOpen() {
    if (this.ended) throw again(this.ended);
  }

  /** Calls the application; an error there is the application's, and changes nothing here. */
  #tell(change, more = {}) {
    try {
      this.options.onConnection?.({ change, ...more });
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  // -- life --

  /** Connects for the first time: tries for `wait` while nothing answers, for longer while the daemon is full. */
  async enter() {
    const { wait } = this.options;
    const began = Date.now();
    for (let attempt = 1; ; attempt++, this.checkOpen()) {
      try {
        await this.uplink.reach();
        await this.lease?.granted;
        return;
      } catch (error) {
        const crowded = error instanceof ProtocolError && CROWDED.has(error.code);
        const patience = crowded ? Math.max(CONNECT_MILLIS, wait) : error instanceof Unreachable ? wait : 0;
        if (Date.now() - began >= patience) {
          this.end(error);
          throw error;
        }
      }
      await this.uplink.wait(Math.min(attempt, 4)); // half a second at most: somebody waits for it
    }
  }

  #hello() {
    const { token, heartbeat, grace } = this.options;
    const features = { attempt: [++this.attempts, this.process] };
    if (heartbeat && heartbeat !== Infinity) features.heartbeat = Math.max(1, Math.round(heartbeat));
    if (grace) features.grace = Math.max(1, Math.round(grace));
    if (this.ticket) features.resume = this.ticket;
    if (this.home !== "main") Object.assign(features, { space: this.home, topics: true });
    if (token) features.token = token;
    if (this.options.reads) features.read = true;
    if (this.options.here) features.here = true;
    return [HELLO, 1, this.client, this.options.name, features];
  }

  /** Takes the welcome of a connection: restores the facts, the turns and the streams, in the order of WIRE.md. */
  #begin(link, packet) {
    const before = this.welcome;
    const [, version, session, space, epoch, sequence, limits, features] = packet;
    this.welcome = { version, session, space, epoch, sequence, limits, features };
    this.link = link;
    this.up = true;
    this.began = Date.now();
    this.isElsewhere = false;
    this.heartbeat.begin(features.heartbeat ?? Infinity);
    this.inFlight.limits = limits;
    this.ticket = features.secret ? [session, features.secret] : null;
    const resumed = features.resumed === true;
    const moved = before !== null && before.space !== space;
    this.seenBefore = moved ? 0 : this.newestSeen;
    this.seen = moved ? epoch : Math.max(this.seen, epoch);
    const place = `the connection is to another space now, it is ${space}, and was ${before?.space}`;
    const turns = moved
      ? this.inFlight.abandon((turn) => new AnotherSpace(`turn ${turn.sequence} was lost before its answer: ${place}`))
      : 0;
    this.inFlight.begin(sequence);
    if (this.lease) this.lease.ask();
    const facts = this.lease ? 0 : this.inFlight.release(!resumed);
    this.#reopen(resumed, moved);
    this.patience.returned();
    for (const waiter of this.waiters.splice(0)) waiter.resolve();
    this.#leaveRoom();
    if (before === null) return this.#tell("connected", { space });
    this.reconnects++;
    this.returned = { space, turns, ...(moved ? { before: before.space } : {}) };
    if (!this.lease) this.#restored(!resumed, facts);
  }

  #restored(fresh, facts) {
    const returned = this.returned ?? { space: this.welcome.space, turns: 0 };
    this.returned = null;
    const change = returned.before ? "another-space" : fresh ? "anew" : "resumed";
    this.#tell(change, { ...returned, facts });
  }

  /** Called when the lease is granted: sends what waited for it, after the claims if it is a new one. */
  holdsAgain(fresh, before) {
    const facts = this.inFlight.release(fresh);
    this.#leaveRoom();
    if (before) this.#restored(fresh, facts);
  }

  /** Called when the lease has ended while there is a connection. */
  leaseEnded() {
    this.inFlight.hold();
    this.#tell("lease-ended");
  }

  #reopen(resumed, moved) {
    const streams = [...this.streams].sort((a, b) => a[0] - b[0]);
    this.streams.clear();
    for (const [number, stream] of streams) stream.reopen(number, resumed, moved);
    if (resumed) for (const number of this.dropped) this.send([ABORT, number, "", false]);
    this.dropped.length = 0;
    for (const each of [...this.lasting]) each.reconnected(moved);
  }

  #lost(reason, began) {
    if (!this.up) return;
    this.up = false;
    this.link = null;
    this.heartbeat.stop();
    if (this.dismissal) return this.end(this.dismissal);
    const Kind = this.isElsewhere ? DeniedHere : Broken;
    const broken = new Kind(`the connection to ${this.url} was lost, before the answer: ${reason}`);
    for (const request of this.requests.values()) request.reject(again(broken));
    this.requests.clear();
    this.inFlight.hold(); // what is submitted from here on was not sent
    if (this.isElsewhere) this.inFlight.takeBack();
    const lasted = Date.now() - began > LASTING_MILLIS;
    this.patience.lost(lasted || !this.isElsewhere);
    this.#tell("lost", { reason });
    if (!this.isOpen) return;
    if (!this.options.reconnect) return this.end(broken);
    if (lasted) this.uplink.lasted();
    this.failures = lasted ? 0 : this.failures + 1;
    this.#comeBack(this.failures);
  }

  async #comeBack(attempt) {
    for (; this.isOpen; attempt++) {
      if (!this.uplink.candidates.isSentOn) await this.uplink.wait(attempt);
      if (!this.isOpen) return;
      try {
        await this.uplink.reach();
        return;
      } catch (error) {
        if (error instanceof ProtocolError && !CROWDED.has(error.code)) {
          this.end(error);
          return;
        }
      }
    }
  }

  /** Ends the client: everything that waits gets the error. */
  end(error) {
    if (!this.isOpen) return;
    this.ended = error;
    this.heartbeat.stop();
    this.uplink.hurry();
    this.lease?.stop(error);
    this.#sayGoodbye();
    const known = error instanceof ProtocolError || error instanceof Broken;
    this.inFlight.fail((turn) =>
      known ? again(error) : new Closed(`closed before turn ${turn.sequence} was answered`),
    );
    for (const stream of [...this.streams.values()]) stream.fail(error);
    for (const each of [...this.lasting]) each.fail(error);
    for (const request of this.requests.values()) request.reject(again(error));
    for (const waiter of this.waiters.splice(0)) waiter.reject(again(error));
    this.#leaveRoom();
    if (error instanceof ProtocolError && this.welcome) this.#tell("ended", { reason: error.message });
  }

  #sayGoodbye() {
    const { link } = this;
    if (!link) return;
    this.#write(pack([BYE, "", ""]));
    this.up = false;
    this.link = null;
    link.close();
  }

  async close() {
    const answers = Promise.allSettled(this.inFlight.tickets().map((ticket) => ticket.promise));
    let timer;
    await Promise.race([answers, new Promise((resolve) => (timer = setTimeout(resolve, DRAIN_MILLIS)))]);
    clearTimeout(timer);
    this.lease?.end();
    this.end(new Closed(`the connection to ${this.url} is closed`));
  }

  // -- packets --

  /** Sends a packet if there is a connection; what matters is sent again with the next one. */
  send(packet) {
    this.#write(pack(packet, PACKET_DEPTH));
  }

  /** Sends a packet of a stream. */
  sendOn(packet) {
    this.send(packet);
  }

  #write(bytes) {
    if (!this.up) return;
    this.heartbeat.said();
    try {
      this.link.send(bytes);
    } catch {
      // it closes, and its end is called
    }
  }

  #hear(bytes, began) {
    this.heartbeat.heard();
    try {
      this.#receive(unpack(bytes), bytes.length);
    } catch (error) {
      if (!(error instanceof DataspaceError)) throw error;
      const { link } = this;
      this.#lost(`the daemon broke the protocol: ${error.message}`, began);
      link?.close();
      return;
    }
    this.heartbeat.beat();
  }

  #receive(packet, size) {
    const [kind, first, second, third, fourth, fifth] = packet;
    let refusal;
    switch (kind) {
      case VALUES:
        return this.streams.get(first)?.arrive(second, third, size);
      case ACCEPTED:
        second.forEach((epoch, at) => this.inFlight.accept(first + at, epoch));
        this.seen = Math.max(this.seen, ...second);
        return this.#leaveRoom();
      case REFUSAL:
        refusal = refusalOf(second, third, fourth, fifth);
        return this.#isSentBy(refusal) ? this.leave(refusal) : this.#refused(first, refusal); // or it is sent again
      case REACHED:
        for (const number of second) this.streams.get(number)?.reach(first);
        return undefined;
      case DONE:
        return this.#endStream(first, (stream) => stream.ended());
      case ERROR:
        refusal = new Refused(second, third, fourth);
        if (this.streams.has(first) && this.#isSentBy(refusal)) return this.leave(refusal); // it is opened again
        return this.#endStream(first, (stream) => failOrReopen(this, stream, refusal));
      case ANSWER:
        return this.#settle(first, (request) => request.resolve(second));
      case DENIED:
        refusal = refusalOf(second, third, fourth, fifth);
        if (!this.#isSentBy(refusal)) return this.#settle(first, (request) => request.reject(refusal));
        this.#settle(first, (request) => request.reject(new DeniedHere(refusal.text)));
        return this.leave(refusal);
      case PING:
        return this.send([PONG, first]);
      case BYE:
        if (!PATIENT.has(first)) this.dismissal = new ProtocolError(first, second, third);
        else if (third || ELSEWHERE.includes(first)) this.uplink.sentAway({ code: first, url: third });
        this.isElsewhere ||= FOLLOWING.includes(first);
        return undefined;
      default:
        return undefined; // a later daemon may say more
    }
  }

  /** Returns whether a daemon refuses because another one serves this client. */
  #isSentBy(refusal) {
    return ELSEWHERE.includes(refusal.code) && this.options.reconnect && !this.uplink.candidates.isStuck(refusal);
  }

  /** Goes to another daemon, with all that is under way. */
  leave(refusal) {
    const { link } = this;
    this.isElsewhere = FOLLOWING.includes(refusal.code);
    this.uplink.sentAway(refusal);
    this.#lost(refusal.message, this.began);
    link?.close();
  }

  #refused(sequence, refusal) {
    if (this.lease && refusal.code === "no-lease" && this.inFlight.isOwn(sequence)) {
      this.inFlight.keep(sequence);
      this.lease.lose();
      return;
    }
    const ticket = this.inFlight.refuse(sequence, refusal);
    this.#leaveRoom();
    if (ticket?.restating) this.#tell("refused", { reason: refusal.message, facts: ticket.actions.length });
  }

  #endStream(number, end) {
    const stream = this.takeStream(number);
    if (stream) end(stream);
  }

  #settle(number, settle) {
    const request = this.requests.get(number);
    this.requests.delete(number);
    if (request) settle(request);
  }

  // -- for the verbs --

  async #waitUp() {
    while (!this.up) {
      this.checkOpen();
      const waiter = new Deferred();
      this.waiters.push(waiter);
      await this.patience.wait(waiter.promise);
    }
  }

  /**
   * Sends a request about the one daemon that the client has named; throws `NotNamed` where the connection is to another
   * one, or was lost as the client went to one.
   */
  async requestNamed(verb, args) {
    await this.#waitUp();
    if (!this.uplink.candidates.isNamed) throw new NotNamed(`the connection is to ${this.url}`, false);
    return this.ask(verb, args).promise.catch((error) => {
      throw error instanceof DeniedHere ? new NotNamed(error.text, true) : error;
    });
  }

  /** Sends a request and returns its answer; after a lost connection again if that is safe, else throws `Broken`. */
  async request(verb, args) {
    const { changes, isSafe } = repetition(verb, args);
    const began = Date.now();
    let unclearIn = null; // the space that may have carried it out
    for (;;) {
      await this.#waitUp().catch((error) => {
        if (!(error instanceof Unreachable && unclearIn && changes)) throw error;
        throw new Unreachable(`${error.text}: ${verb} was sent, so it may have taken effect`);
      });
      const { space } = this.welcome;
      if (unclearIn && changes && unclearIn !== space) {
        throw new AnotherSpace(`${verb} was sent, and its answer lost: the space is ${space} now, and was ${unclearIn}`);
      }
      try {
        return await this.ask(verb, args).promise;
      } catch (error) {
        if (error instanceof DeniedHere) continue;
        if (unclearIn && verb === "release" && error.code === "no-lease") return null; // the first one has ended it
        if (isSafe && this.isOpen && !this.patience.isOver(began) && (await waitedForStore(error))) continue;
        if (!(error instanceof Broken) || !this.isOpen) throw error;
        if (!isSafe) throw new Broken(`${error.text}: ${verb} was sent, so it may have taken effect`);
        unclearIn = space;
      }
    }
  }

  /** Sends a request without waiting; there must be a connection. */
  ask(verb, args) {
    return this.#question((number) => [REQUEST, number, verb, args]);
  }

  /** Sends a step of a producer without waiting; there must be a connection. */
  produce(producer, step) {
    return this.#question((number) => [PRODUCE, number, producer, [step]]);
  }

  #question(packetOf) {
    const number = this.nextRequest++;
    const request = new Deferred();
    request.promise.catch(() => {}); // of those that nothing awaits
    this.send(packetOf(number));
    this.requests.set(number, request);
    return request;
  }

  /** Submits a turn, given as pairs of an owner and its actions. */
  async submit([[owner, actions], ...others], more) {
    this.checkOpen();
    while (this.inFlight.size >= IN_FLIGHT) {
      const waiter = new Deferred();
      this.room.push(waiter);
      await this.patience.wait(waiter.promise);
      this.checkOpen();
    }
    const ticket = this.inFlight.submit(owner, actions, { ...more, others });
    return this.patience.answerTo(ticket, () => {
      const withdrawn = this.inFlight.withdraw(ticket);
      this.#leaveRoom();
      return withdrawn;
    });
  }

  #leaveRoom() {
    if (this.inFlight.size < IN_FLIGHT || !this.isOpen) for (const waiter of this.room.splice(0)) waiter.resolve();
  }

  openStream(stream, spec, items, bytes, number) {
    this.checkOpen();
    const packed = pack([OPEN, number ?? this.nextStream, { space: this.options.space, ...spec }, items, bytes], PACKET_DEPTH);
    const taken = number ?? this.nextStream++;
    this.streams.set(taken, stream);
    this.#write(packed);
    return taken;
  }

  /** Removes a stream and returns it, false if there is none; its epochs stay seen. */
  takeStream(number) {
    const stream = this.streams.get(number);
    if (this.options.space !== "system") this.seen = Math.max(this.seen, stream?.seen ?? 0); // it has epochs of its own
    return this.streams.delete(number) && stream;
  }

  dropStream(number, stream) {
    if (this.streams.get(number) !== stream) return;
    this.takeStream(number);
    if (this.up) this.send([ABORT, number, "", false]);
    else this.dropped.push(number);
  }
}
