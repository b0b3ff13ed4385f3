/**
 * Reports: jobs that are done share turns, as in the client in Python (`dataspace/client/reports.py`).
 *
 * A turn costs the daemon several times what a further job in it costs. So a job that is done waits while two turns of its
 * member have no answer, and is then reported with those that ended meanwhile.
 *
 * Always: a job is reported once; if some jobs of a turn are lost, the others are reported again without them.
 */

import { again, DeliveryLost, Refused, UsageError } from "./errors.js";
import { Deferred } from "./packets.js";

const UNKNOWN = new Set(["not-yours", "out-of-order"]); // refusals that a reconnect may explain
const MOST = 4096; // jobs that share a turn
const TOGETHER = 2; // turns of a member that wait for their answers

/** What jobs know of the member that has them. */
export class JobsMember {
  /** Jobs that the program has taken and not settled, by their tokens. */
  out = new Map();
  /** How often it has joined its group: deliveries of an earlier time have other tokens. */
  era = 0;
  /** Settles once the daemon has said which jobs it keeps; `isHeld` is true then. */
  held = new Deferred();
  isHeld = false;

  constructor(session) {
    this.session = session;
  }
}

/** The jobs of one member that are done, each by itself. */
export class JobReports {
  #session;
  #waiting = []; // lists of a job and the answer to it, each of one turn
  #senders = 0;

  constructor(member) {
    this.#session = member.session;
  }

  /** Reports an open job; resolves to the epoch up to which that holds, or rejects with its refusal. */
  done(job) {
    let report = this.#waiting.at(-1);
    if (!report || report.length === MOST) {
      this.#waiting.push((report = []));
      if (this.#senders < TOGETHER) this.#sendAll();
    }
    const answer = new Deferred();
    report.push({ job, answer });
    job.settled = job.queued = true;
    return answer.promise;
  }

  /** Sends what waits at once. */
  flush() {
    for (const report of this.#waiting.splice(0)) this.#send(report);
  }

  async #sendAll() {
    this.#senders++;
    await undefined; // so that jobs that are done at once share the first turn as well
    while (this.#waiting.length) await this.#send(this.#waiting.shift());
    this.#senders--;
  }

  /** Reports jobs until each has its answer. */
  async #send(report) {
    let left = report;
    try {
      while (left.length) left = await this.#sendSome(left);
    } catch (error) {
      for (const { job, answer } of left) {
        job.lost ||= job.queued; // its member has ended before it was sent
        job.queued = false;
        answer.reject(again(error));
      }
    }
  }

  /** Reports jobs in one turn; returns those that are to be reported again, since others of them are lost. */
  async #sendSome(report) {
    for (const { job } of report) if (!job.member.isHeld) await job.member.held.promise;
    for (const { job } of report) job.queued = false;
    const held = heldOf(report);
    if (!held.length) return held;
    const jobs = held.map(({ job }) => job);
    try {
      const epoch = await outcomeOf(jobs, reported(jobs, (deliveries) => this.#session.submit(NOTHING, { deliveries })));
      for (const { answer } of held) answer.resolve(epoch);
      return [];
    } catch (error) {
      const left = error instanceof DeliveryLost ? heldOf(held) : held;
      if (left.length === held.length) throw error;
      for (const { job } of left) job.settled = job.queued = true;
      return left;
    }
  }
}

/** Returns the jobs of a report that are not lost; the others have their answer by that. */
function heldOf(report) {
  for (const { job, answer } of report) if (job.lost) answer.reject(lostOf(job));
  return report.filter(({ job }) => !job.lost);
}

const NOTHING = [["", []]]; // the actions of a turn that only reports jobs

/** Submits a turn of a session, with jobs that are done with it: at once, but after a lost connection. */
export async function inTurn(session, jobs, submit = (deliveries) => session.submit(NOTHING, { deliveries })) {
  for (const job of jobs) {
    if (!(job?.member instanceof JobsMember)) throw new UsageError(`${job} is no job`);
    if (job.member.session !== session) throw new UsageError("a job came over another connection, or is of another space");
    if (!job.member.isHeld) await job.member.held.promise;
  }
  checkOpen(jobs);
  return outcomeOf(jobs, reported(jobs, submit));
}

/**
 * Submits a turn by which jobs are done, again if it was refused after a reconnect and their members have kept the jobs.
 *
 * Then nothing has happened: their deliveries have other tokens now, or the daemon had not read the items yet.
 */
async function reported(jobs, submit) {
  for (;;) {
    const groups = new Map();
    const eras = jobs.map((job) => job.member.era);
    for (const job of jobs) {
      if (!groups.has(job.group)) groups.set(job.group, []);
      groups.get(job.group).push(...job.cell);
      job.settled = job.asked = true;
    }
    try {
      return await submit([...groups]);
    } catch (error) {
      if (!UNKNOWN.has(error.code) || jobs.every((job, at) => job.member.era === eras[at])) throw error;
    }
    for (const job of jobs) await job.member.held.promise;
    for (const job of jobs) if (job.member.out.get(job.token) !== job) throw lostOf(job);
  }
}

/** Returns the error of a job that is no longer its member's. */
export function lostOf(job) {
  const found = { group: job.group, lost: [[job.epoch, job.position]] };
  return new DeliveryLost("not-yours", `job ${job.epoch}.${job.position} of group ${job.group} is no longer this member's`, found);
}

/** Refuses jobs that are lost or settled. */
export function checkOpen(jobs) {
  for (const job of jobs) {
    if (job.lost) throw lostOf(job);
    if (job.settled) throw new UsageError(`job ${job.epoch}.${job.position} of group ${job.group} is settled already`);
  }
  if (new Set(jobs).size < jobs.length) throw new UsageError("a job stands twice among those that are done");
}

/** Waits for the answer, and notes what it says about jobs. */
export async function outcomeOf(jobs, answer) {
  try {
    const value = await answer;
    for (const job of jobs) job.member.out.delete(job.token);
    return value;
  } catch (error) {
    const lost = new Set((error instanceof DeliveryLost ? error.lost : []).map((cell) => cell.join()));
    for (const job of jobs) {
      if (lost.has(`${job.epoch},${job.position}`)) {
        job.lost = true;
        job.member.out.delete(job.token);
      } else if (error instanceof Refused) {
        job.settled = false;
      }
    }
    throw error;
  } finally {
    for (const job of jobs) job.asked = false;
  }
}
