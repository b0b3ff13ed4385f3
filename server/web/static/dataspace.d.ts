/** Types of `dataspace.js`, whose comments say what each thing does. */

declare global {
  interface SymbolConstructor {
    /** As the library `esnext.disposable` has it, for programs that are compiled without it. */
    readonly asyncDispose: unique symbol;
  }
}

/** What a fact, a message or a part of one can be. `Date` and `Map` are written, but come back as `Time` and `ValueMap`. */
export type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | Float
  | Time
  | Date
  | Record
  | ValueMap
  | ReadonlyMap<Value, Value>
  | readonly Value[]
  | { readonly [name: string]: Value };

/** A pattern, or the text of one: `present($who)`. */
export type Pattern = Value;

/** A row of captures, in the order of `names`. A program that knows its facts may say what they are. */
export type Row = Value[];

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export type ClassName = "bool" | "int" | "float" | "str" | "bytes" | "time" | "null" | "record" | "seq" | "map";

// -- errors --

export class DataspaceError extends Error {
  constructor(code: string, text: string, url?: string);
  /** One of the codes of WIRE.md, or empty. */
  readonly code: string;
  /** The message without the code. */
  readonly text: string;
  /** The address to ask instead, or empty. */
  readonly url: string;
}
export class Refused extends DataspaceError {}
/** A turn did not happen: something that it expected does not hold. */
export class ExpectationFailed extends Refused {
  /** Which of the expectations it is, from 1 on. */
  readonly number: number;
  /** The first captures that were found instead. */
  readonly rows: Row[];
  /** How many there are. */
  readonly count: number;
  /** The epoch of the change to what was to be unchanged; 0 for other expectations. */
  readonly epoch: number;
}
/** A job is no longer this member's, or is done already: the turn or the request did not happen. */
export class DeliveryLost extends Refused {
  /** Epoch and position of each of them. */
  readonly lost: [number, number][];
}
/** A key of a live map has several rows, and the map was not made with `many`. */
export class SeveralRows extends UsageError {}
export class TimedOut extends DataspaceError {
  constructor(text: string);
}
export class ProtocolError extends DataspaceError {}
export class UsageError extends DataspaceError {
  constructor(text: string);
}
export class Unreachable extends UsageError {}
export class Broken extends UsageError {}
export class Closed extends UsageError {}
export class AnotherSpace extends UsageError {}

// -- values --

export class Record {
  constructor(label: Value, ...fields: Value[]);
  label: Value;
  fields: Value[];
  toString(): string;
}

/** A float whose value is integral: `new Float(1)` is `1.0`, which is not `1`. */
export class Float {
  constructor(value: number);
  readonly value: number;
  valueOf(): number;
  toString(): string;
}

/** A moment, to the microsecond. */
export class Time {
  constructor(seconds: number, micros?: number);
  /** Of a `Date`, or of microseconds since 1970 UTC. */
  static of(moment: Date | number): Time;
  static parse(text: string): Time;
  /** Seconds since 1970 UTC. */
  readonly seconds: number;
  /** Microseconds of the second. */
  readonly micros: number;
  toDate(): Date;
  toString(): string;
}

/** A map with a key that is no text; any other map is a plain object. */
export class ValueMap implements Iterable<[Value, Value]> {
  constructor(pairs: Iterable<readonly [Value, Value]>);
  readonly pairs: [Value, Value][];
  readonly size: number;
  get(key: Value): Value | undefined;
  has(key: Value): boolean;
  [Symbol.iterator](): Iterator<[Value, Value]>;
}

export function record(label: Value, ...fields: Value[]): Record;

// -- patterns --

export function any(ofClass?: ClassName): Record;
export function capture(name?: string | null, options?: { class?: ClassName | null; sub?: Pattern }): Record;
export function lit(value: Value): Record;
export function exact(pattern: Pattern): Record;
export function captureNames(pattern: Pattern): string[];
/** Returns a function from a value to its captures, or to null where it does not match. */
export function matcher(pattern: Pattern): (value: Value) => Row | null;

// -- what a turn expects --

declare const expectation: unique symbol;
export interface Expectation {
  readonly [expectation]: true;
}
/** No fact matches. */
export function absent(pattern: Pattern): Expectation;
/** These captures and no others, in any order; `[[]]` for a pattern without captures that has a match. */
export function exactly(pattern: Pattern, rows: Iterable<readonly Value[]>): Expectation;
/** No fact that matches has come or gone after an epoch. */
export function unchanged(pattern: Pattern, options: { since: number }): Expectation;

// -- forms of values --

export function equal(one: Value, other: Value): boolean;
export function compare(one: Value, other: Value): number;
/** The same for equal values alone: for keys of a `Map` and elements of a `Set`. */
export function key(value: Value): string | number;
export function parse(text: string): Value;
export function text(value: Value): string;
export function toJson(value: Value): Json;
export function fromJson(json: Json): Value;
export function pack(value: Value, depth?: number): Uint8Array;
export function unpack(bytes: Uint8Array, depth?: number): Value;

// -- connecting --

export type ConnectionChange =
  | "connected"
  | "lost"
  | "resumed"
  | "anew"
  | "another-space"
  | "lease-ended"
  | "refused"
  | "ended";

export interface ConnectionEvent {
  change: ConnectionChange;
  reason?: string;
  /** The identity of the space, and of the one before if it is another. */
  space?: string;
  before?: string;
  /** Facts that were asserted again, or refused. */
  facts?: number;
  /** Turns without an answer that another space is not sent: each throws `AnotherSpace`. */
  turns?: number;
}

export interface Link {
  send(packet: Uint8Array): void;
  close(): void;
}

export interface LinkEvents {
  opened(): void;
  message(packet: Uint8Array): void;
  closed(reason: string): void;
}

/** Opens a connection on which a message is a packet; `webSocket` is the usual one. */
export type Transport = (url: string, events: LinkEvents) => Link;

export const webSocket: Transport;

export interface ConnectOptions {
  /** One of the daemon's dataspaces; `main` by default. */
  space?: string;
  /** What the daemon calls this client in its status. */
  name?: string;
  /** What shows the rights of this client; it is in the first packet, never in the address. */
  token?: string;
  /** The identity that turns are numbered by: random by default, `owner:…` with an owner. */
  client?: string;
  /** A durable owner, whose facts stay until they are retracted. */
  owner?: string;
  /** Milliseconds; with nothing from the daemon for two of them the client reconnects. 15 000 by default, 0 for none. */
  heartbeat?: number;
  /** Milliseconds that the session, and its facts, outlive a lost connection. 0 by default. */
  grace?: number;
  /** Milliseconds: facts belong to a lease of so long, which is renewed until `close`. 0, no lease, by default. */
  lease?: number;
  /** False: a lost connection is not made again. */
  reconnect?: boolean;
  /** Milliseconds for which a daemon that does not answer yet is tried again. 0 by default. */
  wait?: number;
  /** Milliseconds that a call waits for a daemon that is away, before it throws `Unreachable`; null, for ever, by default. */
  timeout?: number | null;
  /** Who may serve quiet observations and `matches`: the daemon that leads, the default, or any of the addresses. */
  read?: "leader" | "any";
  onConnection?: (event: ConnectionEvent) => void;
  transport?: Transport;
}

export function connect(url: string | URL | readonly (string | URL)[], options?: ConnectOptions): Promise<Space>;

export interface Welcome {
  version: number;
  session: number;
  space: string;
  epoch: number;
  sequence: number;
  limits: { [name: string]: number };
  features: { [name: string]: Value };
}

export interface ObserveOptions {
  /** A capture, or several: changes of one epoch are paired by it, see `replaces` and `replacedBy` of an epoch. */
  by?: string | readonly string[] | null;
  /** False leaves out the state at the beginning. */
  snapshot?: boolean;
  /** Begin with what follows this epoch, from the log. */
  after?: number | null;
  /** Begin with the state at this epoch, from the log. */
  asOf?: number | null;
  /** End with this epoch. */
  upto?: number | null;
  /** The `welcome.space` of when `after`, `asOf` and `upto` were epochs: refused with `epoch-lost` in a space that was made anew. */
  identity?: string;
  /** Show an epoch only when it is on disk. */
  durable?: boolean;
  /** Assert no interest. */
  quiet?: boolean;
  /** With `after`: the past as its net difference. */
  net?: boolean;
  /** What becomes of changes that are not read in time. */
  policy?: "conflate" | "wait" | "fail" | "drop";
  /** Also yield epochs without rows, whose `progress` is true. */
  progress?: boolean;
  /** Milliseconds: changes come at most once in so many, as their net difference with all messages; 0, at once, by default. */
  pace?: number;
  /** Read epochs in the parts that they come in, so that a large one is never whole in memory; see `begins` and `more`. */
  parts?: boolean;
  /** How many values are requested ahead; by default as many as fit into a mebibyte. */
  window?: number | null;
}

export interface AssertOptions extends TurnOptions {
  /** A durable owner, whose facts stay until they are retracted; by default the client itself. */
  owner?: string;
}

export interface PutOptions extends AssertOptions {
  /** What takes the key of the fact; by default all fields but the last. */
  by?: Pattern | null;
}

export interface TurnOptions {
  /** What must hold in the state before the turn. */
  expect?: Iterable<Expectation>;
  /** Jobs that are done with the turn: both happen, or neither does. */
  done?: Iterable<Job>;
  /** The trace that the turn is a part of, as W3C Trace Context writes it: `00-TRACE-SPAN-FLAGS`. */
  traceparent?: string;
}

export class Space {
  private constructor();
  assert(value: Value, options?: AssertOptions): Promise<Claim>;
  send(value: Value, options?: TurnOptions): Promise<number>;
  turn(fill: (draft: Draft) => void, options?: TurnOptions): Promise<number>;
  put(value: Value, options?: PutOptions): Promise<number>;
  first<R extends Row = Row>(pattern: Pattern, options?: { timeout?: number | null }): Promise<R>;
  observe<R extends Row = Row>(pattern: Pattern, options?: ObserveOptions): Observation<R>;
  matches<R extends Row = Row>(pattern: Pattern): Promise<R[]>;
  live<R extends LiveRow = LiveRow>(
    pattern: Pattern,
    by: string | readonly string[],
    options: LiveManyOptions<R>,
  ): LiveMap<readonly R[]>;
  live<R extends LiveRow = LiveRow>(pattern: Pattern, by: string | readonly string[], options?: LiveOptions<R>): LiveMap<R>;
  consume<R extends Row = Row>(pattern: Pattern | null | undefined, options: ConsumeOptions): Jobs<R>;
  subscribe<T extends Value = Value>(topic: string, options?: SubscribeOptions): Promise<Subscription<T>>;
  publish(topic: string, options?: PublishOptions): Promise<Publication>;
  endTopic(topic: string): Promise<void>;
  sync(): Promise<number>;
  status(): Promise<{ [name: string]: Value }>;
  /** The status of a group, and as `jobs` up to `most` (100) of those that it has, without taking any. */
  peek(group: string, options?: { most?: number }): Promise<{ [name: string]: Value }>;
  request(verb: string, args?: { readonly [name: string]: Value }): Promise<Value>;
  close(): Promise<void>;
  readonly welcome: Welcome;
  readonly reconnects: number;
  readonly inFlight: number;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Claim {
  private constructor();
  readonly handle: number;
  readonly value: Value;
  /** The durable owner of the fact; empty for the client itself. */
  readonly owner: string;
  retract(options?: TurnOptions): Promise<number>;
  replace(value: Value, options?: TurnOptions): Promise<number>;
}

export class Draft {
  private constructor();
  assert(value: Value, options?: { owner?: string }): Claim;
  retract(claim: Claim): void;
  replace(claim: Claim, value: Value): Claim;
  put(value: Value, options?: { by?: Pattern | null; owner?: string }): Claim;
  withdraw(pattern: Pattern, options?: { owner?: string }): void;
  send(value: Value): void;
}

export class Observation<R extends Row = Row> implements AsyncIterableIterator<Epoch<R>> {
  private constructor();
  readonly pattern: Pattern;
  readonly names: string[];
  readonly waiting: { epochs: number; bytes: number };
  read(): Promise<Epoch<R> | undefined>;
  next(): Promise<IteratorResult<Epoch<R>, undefined>>;
  return(): Promise<IteratorResult<Epoch<R>, undefined>>;
  close(): void;
  [Symbol.asyncIterator](): this;
  [Symbol.asyncDispose](): Promise<void>;
}

interface LiveObserving {
  /** The state at this epoch, from the log, and no more. */
  asOf?: number | null;
  /** With `asOf`: go on from that epoch. */
  follow?: boolean;
  /** The `welcome.space` of when `asOf` was an epoch. */
  identity?: string;
  /** Show an epoch only when it is on disk. */
  durable?: boolean;
  /** Assert no interest. */
  quiet?: boolean;
  /** Milliseconds: changes come at most once in so many. */
  pace?: number;
}

export interface LiveOptions<R = LiveRow> extends LiveObserving {
  /** True: a key has a list of its rows. By default to read a key with several rows throws `SeveralRows`. */
  many?: false;
  /** Compares two rows; by default keys are in the order in which they appeared. */
  sort?: ((one: R, other: R) => number) | null;
}

export interface LiveManyOptions<R = LiveRow> extends LiveObserving {
  many: true;
  /** Compares the rows of two keys. */
  sort?: ((one: readonly R[], other: readonly R[]) => number) | null;
}

/** A row of a live map: the captures by name. */
export type LiveRow = { readonly [name: string]: Value };

/** What has become of a key; null for no row. To read several rows without `many` throws `SeveralRows`. */
export interface LiveChange<R = LiveRow> {
  readonly key: Value;
  readonly old: R | null;
  readonly now: R | null;
}

/** What matches a pattern now, by key; made by `space.live`. With `many` an `R` is the frozen list of the rows of a key. */
export class LiveMap<R = LiveRow> implements Iterable<[Value, R]>, AsyncIterable<LiveChange<R>> {
  private constructor();
  readonly epoch: number;
  readonly error: Error | null;
  readonly ready: Promise<this>;
  readonly size: number;
  readonly snapshot: readonly R[];
  get(key: Value): R | undefined;
  has(key: Value): boolean;
  keys(): IterableIterator<Value>;
  values(): IterableIterator<R>;
  entries(): IterableIterator<[Value, R]>;
  [Symbol.iterator](): IterableIterator<[Value, R]>;
  changed(options?: { timeout?: number | null }): Promise<LiveChange<R>[]>;
  [Symbol.asyncIterator](): AsyncGenerator<LiveChange<R>, void>;
  at(epoch: number): Promise<this>;
  subscribe(call: (map: this) => void): () => void;
  close(): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Epoch<R extends Row = Row> {
  private constructor();
  readonly number: number;
  /** The first epoch that this stands for: below `number` where several are put together. */
  readonly first: number;
  /** Microseconds since 1970 UTC. */
  readonly micros: number;
  readonly time: Date;
  readonly flags: number;
  readonly added: R[];
  readonly messages: R[];
  readonly removed: R[];
  /** How many changes were dropped here, under the policy `drop`. */
  readonly lost: number;
  readonly state: boolean;
  readonly conflated: boolean;
  readonly progress: boolean;
  /** False for the parts of an epoch after its first; one that begins again replaces parts whose end has not come. */
  readonly begins: boolean;
  /** True if further parts of the same epoch follow. */
  readonly more: boolean;
  /** With `by`: beside each row of `added` the row of the same key that it replaces, or null. */
  readonly replaces: (R | null)[] | null;
  /** With `by`: beside each row of `removed` the row by which it is replaced, or null. */
  readonly replacedBy: (R | null)[] | null;
}

// -- groups --

export interface ConsumeOptions {
  /** The name of the group, which the first member makes. */
  group: string;
  /** Where the group begins: now, with the facts that hold, at an epoch, at a time. */
  start?: "now" | "held" | number | bigint | Date | Time;
  /** Jobs that may be out to this member; 1 by default. */
  inFlight?: number;
  /** The name of a capture: jobs of one key are done in order. */
  key?: string | null;
  /** Milliseconds from when the program took a job until it goes to another member; 30 000 by default. */
  ackWithin?: number | null;
  /** The durable topic whose items the group divides. */
  topic?: string | null;
  /** Failed attempts after which a job is dead; 5 by default, 0 for no limit. */
  attempts?: number | null;
  /** Assert no interest. */
  quiet?: boolean;
  /** Jobs that may be out to all members together; 0, the default, for no limit. */
  mostOut?: number | null;
  /** Milliseconds after a failed attempt, which double each time; or a list of waits, the last for all further ones. */
  backoff?: number | readonly number[] | null;
  /** Jobs that are handed out in a second; 0, the default, for no limit. */
  rate?: number | null;
  /** One member at a time gets jobs. */
  exclusive?: boolean | null;
  /** What is divided: `+` facts that appear, `-` facts that go, which needs a key, `!` messages; `"+!"` by default. */
  kinds?: string | null;
  /** The name of a capture: jobs of a higher level, 0 to 15, come first. */
  priority?: string | null;
}

export class Job<R extends Row = Row> {
  private constructor();
  /** Group, epoch and position: the same in every attempt. */
  readonly id: [string, number, number];
  readonly captures: R;
  readonly named: { [name: string]: Value };
  readonly names: string[];
  readonly epoch: number;
  readonly position: number;
  /** Microseconds since 1970 UTC. */
  readonly micros: number;
  readonly time: Date;
  /** Rises with each delivery of the item. */
  readonly token: number | bigint;
  /** Counts from 1. */
  readonly attempt: number;
  readonly isMessage: boolean;
  /** True for a fact that went. */
  readonly isEnding: boolean;
  /** Of an item of a topic: the time of its epoch, and why a producer crashed that could have sent more of it. */
  readonly topicTime: TopicTime | null;
  readonly crashed: string;
  readonly lost: boolean;
  /** True once the fact has gone meanwhile. */
  readonly gone: boolean;
  readonly settled: boolean;
  done(): Promise<number>;
  again(options?: { after?: number; blame?: boolean; reason?: string }): Promise<void>;
  dead(reason?: string): Promise<void>;
  extend(): Promise<void>;
  cause(): Promise<string[]>;
}

/** A member of a group; made by `space.consume`. */
export class Jobs<R extends Row = Row> implements AsyncIterableIterator<Job<R>> {
  private constructor();
  readonly group: string;
  readonly ackWithin: number;
  readonly ready: Promise<this>;
  /** Jobs that have come and were not taken. */
  readonly waiting: number;
  take(): Promise<Job<R> | undefined>;
  next(): Promise<IteratorResult<Job<R>, undefined>>;
  return(): Promise<IteratorResult<Job<R>, undefined>>;
  done(...jobs: Job<R>[]): Promise<number>;
  extend(...jobs: Job<R>[]): Promise<void>;
  run(work: (job: Job<R>) => unknown, options?: { tasks?: number }): Promise<void>;
  close(): void;
  [Symbol.asyncIterator](): this;
  [Symbol.asyncDispose](): Promise<void>;
}

// -- topics --

/** An integer, or an array of as many integers as the topic has dimensions. */
export type TopicTime = number | bigint | readonly (number | bigint)[];

export interface SubscribeOptions {
  /** Some of its partitions; all by default. */
  partitions?: readonly number[] | null;
  /** False lets the rest of epochs through that had begun before. */
  atomic?: boolean;
  /** Begin with what is retained at or after this time, or after one of several. */
  asOf?: TopicTime | readonly TopicTime[] | null;
  /** End before this time. */
  upTo?: TopicTime | null;
  /** `wait`: publishers wait for this subscriber, however slow it is. */
  slow?: "fail" | "wait";
  /** Milliseconds to wait for the topic to appear; 0 by default. */
  timeout?: number;
  /** Bytes that epochs may hold here that are not complete; 256 MiB by default. */
  openBytes?: number;
}

export class TopicEpoch<T extends Value = Value> {
  private constructor();
  readonly time: TopicTime;
  readonly items: T[];
  /** Why a producer ended that could have sent more of it; empty if there was none. */
  readonly crashed: string;
}

export type TopicEvent<T extends Value = Value> =
  | { readonly type: "batch"; readonly partition: number; readonly time: TopicTime; readonly items: T[]; readonly bytes: number }
  | { readonly type: "frontier"; readonly times: TopicTime[] }
  | {
      readonly type: "crash";
      readonly partition: number;
      readonly since: TopicTime[];
      readonly epochs: TopicTime[];
      readonly reason: string;
    };

export class Subscription<T extends Value = Value> implements AsyncIterableIterator<TopicEpoch<T>> {
  private constructor();
  readonly topic: string;
  readonly partitions: readonly number[];
  readonly frontier: TopicTime[];
  read(): Promise<TopicEpoch<T> | undefined>;
  next(): Promise<IteratorResult<TopicEpoch<T>, undefined>>;
  return(): Promise<IteratorResult<TopicEpoch<T>, undefined>>;
  events(): AsyncGenerator<TopicEvent<T>, void>;
  nextEvent(): Promise<TopicEvent<T> | undefined>;
  close(): void;
  [Symbol.asyncIterator](): this;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface PublishOptions {
  partition?: number;
  /** The shape of the topic, if it is made. */
  partitions?: number;
  dimensions?: number;
  /** Where it begins; by default where the partition stands. */
  time?: TopicTime | null;
  /** Bytes that the daemon keeps for later subscribers, and for those that come back. */
  retain?: number;
  /** Keeps the topic on the daemon's disk. */
  durable?: boolean;
  /** Seconds after which a durable topic deletes an epoch. */
  age?: number | null;
  /** By which another connection resumes this publication to a durable topic. */
  name?: string;
  /** Milliseconds that it outlives a lost connection; needs a durable topic. */
  away?: number;
}

export class Publication {
  private constructor();
  readonly topic: string;
  readonly partition: number;
  readonly name: string;
  readonly time: TopicTime | null;
  readonly capabilities: Capability[];
  send(items: readonly Value[], options?: { at?: TopicTime | null }): Promise<void>;
  finish(items: readonly Value[], then: TopicTime): Promise<void>;
  advance(time: TopicTime): Promise<void>;
  hold(time: TopicTime): Promise<Capability>;
  release(): Promise<void>;
  flush(): Promise<void>;
  close(): Promise<void>;
  crash(reason: string): void;
  [Symbol.asyncDispose](): Promise<void>;
}

export class Capability {
  private constructor();
  readonly time: TopicTime | null;
  downgrade(time: TopicTime): Promise<void>;
  release(): Promise<void>;
}
