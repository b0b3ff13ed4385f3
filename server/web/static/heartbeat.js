/** The heartbeat of a connection: something is sent in each interval, and a silent connection is given up. */

export class Heartbeat {
  #timer = null;
  #interval = Infinity;
  #said = 0;
  #heard = 0;
  #beat;
  #cut;

  /** `beat(idle)` is called several times in each interval, `cut(reason, heard)` after two without a sign of life. */
  constructor(beat, cut) {
    this.#beat = beat;
    this.#cut = cut;
  }

  /** Begins anew with a connection; `interval` has milliseconds. */
  begin(interval) {
    this.stop();
    this.#interval = interval;
    this.#said = this.#heard = Date.now();
    if (interval === Infinity) return;
    this.#timer = setInterval(() => {
      const silent = Date.now() - this.#heard > 2 * interval;
      if (silent) this.#cut(`no data for ${2 * interval} ms`, this.#heard);
      else this.beat();
    }, Math.max(1, interval / 4));
  }

  stop() {
    clearInterval(this.#timer);
  }

  said() {
    this.#said = Date.now();
  }

  heard() {
    this.#heard = Date.now();
  }

  /** Called for each message too: timers of pages in the background are slow, messages are not. */
  beat() {
    const now = Date.now();
    this.#beat(now, now - this.#said >= this.#interval / 2);
  }
}
