/**
 * Overview: what the daemon does and holds, and what needs a look: what is slow, full or suspended.
 *
 * From `status` each second, `sessions` each three (where the token may inspect), and the space `system`.
 */

import { PACE } from "../live.js";
import { ago, bytes, h, number, replace, span } from "../dom.js";

const SECOND = 1000;
const SESSIONS_SECOND = 3000;
const POINTS = 60;
const MOST_SESSIONS = 500;
const SLOW_MILLIS = 500;
const BEHIND_SECONDS = 2;
const MOST_NAMED = 8;

export default {
  name: "Overview",
  key: "o",
  mount(place, app) {
    const tiles = h("div", { class: "tiles", id: "tiles" });
    const trouble = h("ul", { class: "list", id: "trouble" });
    const about = h("div", { class: "note", id: "about" });
    replace(
      place,
      h("section", { class: "panel", "aria-label": "What needs a look" }, h("h2", {}, "What needs a look"), trouble),
      tiles,
      about,
    );

    const figures = new Figures(tiles);
    const suspended = new Map();
    let found = null; // the newest status
    let sessions = null;
    let late = 0;

    const draw = () => {
      if (!found) return;
      const named = troubles(found, sessions, suspended, late);
      replace(
        trouble,
        ...(named.length
          ? named.map(([grade, text]) => h("li", { class: grade, "data-trouble": grade }, `${MARK[grade]} ${text}`))
          : [h("li", { class: "good", "data-trouble": "none" }, "✓ Nothing is slow, full or suspended.")]),
      );
    };

    const ends = [
      app.poll(SECOND, async () => {
        const began = performance.now();
        found = await app.space.status();
        late = performance.now() - began;
        figures.show(found, sessions, late);
        replace(about, aboutText(found));
        draw();
      }),
    ];
    if (app.may("inspect")) {
      ends.push(
        app.poll(SESSIONS_SECOND, async () => {
          sessions = await app.space.request("sessions", { most: MOST_SESSIONS });
          draw();
        }),
      );
      if (app.system) ends.push(follow(app, suspended, draw));
    }
    return () => ends.forEach((end) => end());
  },
};

const MARK = { bad: "✗", warn: "▲" };

/** Follows the rules that are suspended. */
function follow(app, suspended, draw) {
  const stream = app.system.observe("suspended($space, $name, $reason)", { quiet: true, pace: PACE });
  (async () => {
    try {
      for await (const { state, added, removed } of stream) {
        if (state) suspended.clear();
        for (const [space, name] of removed) suspended.delete(`${space} ${name}`);
        for (const row of added) suspended.set(`${row[0]} ${row[1]}`, row);
        draw();
      }
    } catch (error) {
      app.fail(error);
    }
  })();
  return () => stream.close();
}

/** Returns `[grade, sentence]` for each thing that is slow, full or suspended. */
function troubles(status, sessions, suspended, late) {
  const said = [];
  const { memory_limit: limit, memory_accounted_bytes: held } = status;
  if (status.disk_full) said.push(["bad", `The disk is full: ${number(status.waiting_epochs)} epochs wait for room; only turns that retract are taken.`]);
  else if (status.waiting_epochs > 100) said.push(["warn", `The disk is slow: ${number(status.waiting_epochs)} epochs wait to be written.`]);
  if (limit && held > limit * 0.9) said.push(["bad", `Memory is nearly full: ${bytes(held)} of ${bytes(limit)} (limits.memory).`]);
  for (const [space, name, reason] of [...suspended.values()].slice(0, MOST_NAMED)) {
    said.push(["bad", `Rule ${name} of ${space} is suspended: ${reason}`]);
  }
  if (suspended.size > MOST_NAMED) said.push(["bad", `${suspended.size - MOST_NAMED} more rules are suspended.`]);
  if (!suspended.size && status.rules_suspended) said.push(["bad", `${number(status.rules_suspended)} rules are suspended.`]);
  if (status.leads === false) {
    if (!status.leader && "leader" in status) said.push(["bad", "No leader answers: this daemon follows a log that nobody writes, or its leader stands still."]);
    if (status.lag_seconds >= BEHIND_SECONDS) said.push(["warn", `This daemon follows, ${behind(status.lag_epochs, status.lag_seconds)}.`]);
  }
  for (const [name, each] of Object.entries(status.followers ?? {})) {
    if (largest(each.lag_seconds) >= BEHIND_SECONDS) said.push(["warn", `The follower ${name} is ${behind(largest(each.lag_epochs), largest(each.lag_seconds))}.`]);
  }
  const slow = (sessions ?? [])
    .filter((each) => each.state === "connected" && Number(each.lag_seconds ?? 0) >= BEHIND_SECONDS)
    .sort((one, other) => Number(other.lag_seconds) - Number(one.lag_seconds));
  for (const each of slow.slice(0, MOST_NAMED)) {
    said.push([
      "warn",
      `Session ${each.id} ${each.name ? `(${each.name}) ` : ""}reads slowly: ${number(each.backlog)} values wait, ` +
        `${number(each.lag_epochs)} epochs, ${span(Number(each.lag_seconds) * 1000)} behind.`,
    ]);
  }
  if (slow.length > MOST_NAMED) said.push(["warn", `${slow.length - MOST_NAMED} more sessions read slowly.`]);
  const away = (sessions ?? []).filter((each) => each.state === "suspended");
  if (away.length) {
    const names = away.slice(0, MOST_NAMED).map((each) => each.name || each.id);
    said.push(["warn", `${number(away.length)} ${away.length === 1 ? "session is" : "sessions are"} suspended, without a connection: ${names.join(", ")}${away.length > names.length ? " …" : ""}.`]);
  } else if (!sessions && status.sessions_waiting) {
    said.push(["warn", `${number(status.sessions_waiting)} sessions are suspended, without a connection.`]);
  }
  if (late > SLOW_MILLIS) said.push(["warn", `The daemon answers slowly: this page waited ${span(late)} for its status.`]);
  return said;
}

/** The largest number of an object; 0 in an empty one. */
function largest(numbers) {
  return Math.max(0, ...Object.values(numbers).map(Number));
}

function behind(epochs, seconds) {
  return epochs ? `${number(epochs)} epochs and ${span(Number(seconds) * 1000)} behind` : "up to date";
}

function aboutText(status) {
  const said = [`dataspace ${status.version}`];
  if (status.leads === false) said.push(status.leader ? `follows ${status.leader}` : "follows");
  if (status.started) said.push(`started ${ago(status.started)}`);
  if (status.process) said.push(`process ${status.process}`);
  if (Array.isArray(status.addresses)) said.push(status.addresses.join(", "));
  if (status.data) said.push(`data in ${status.data}`);
  if (!status.addresses) said.push("this token may not inspect: sessions and names are left out");
  return said.join(" · ");
}

/** The tiles with figures, some with the last minute as a line. */
class Figures {
  constructor(place) {
    this.tiles = new Map();
    this.place = place;
    this.before = null;
    this.epochs = [];
    this.changes = [];
  }

  show(status, sessions, late) {
    const now = performance.now();
    const { before } = this;
    if (before && before.identity === status.identity && status.epoch >= before.epoch) {
      const seconds = Math.max(0.05, (now - before.at) / 1000);
      push(this.epochs, (status.epoch - before.epoch) / seconds);
      if (status.changes !== undefined) push(this.changes, Math.max(0, status.changes - before.changes) / seconds);
    }
    this.before = { at: now, epoch: status.epoch, changes: status.changes, identity: status.identity };
    const used = status.memory_limit ? status.memory_accounted_bytes / status.memory_limit : 0;
    const lags = (sessions ?? []).map((each) => Number(each.lag_seconds ?? 0));
    const dropped = status.slow_dropped_changes + status.slow_failed_streams;
    this.#tile("Epochs a second", rate(this.epochs), `epoch ${number(status.epoch)}, ${number(status.durable_epoch)} on disk`, { line: this.epochs });
    this.#tile("Changes a second", rate(this.changes), `${number(status.changes)} since the start`, { line: this.changes });
    this.#tile("Facts", number(status.facts), `${number(status.claims)} claims of ${number(status.owners)} owners, ${bytes(status.facts_bytes)}`);
    this.#tile("Sessions", number(status.sessions), `${number(status.sessions_waiting)} suspended, ${number(status.leases)} leases`);
    this.#tile("Observers", number(status.observers), `${number(status.patterns)} patterns, ${number(status.streams)} streams`);
    this.#tile(
      "Lag",
      sessions ? span(Math.max(0, ...lags) * 1000) : "–",
      `${bytes(status.waiting_bytes)} wait; ${number(status.slow_conflated_epochs)} epochs merged, ${number(dropped)} losses`,
      { grade: Math.max(0, ...lags) >= BEHIND_SECONDS ? "warn" : "" },
    );
    const followers = Object.values(status.followers ?? {});
    if (status.leads === false) {
      this.#tile("Behind the leader", span(Number(status.lag_seconds) * 1000), `${number(status.lag_epochs)} epochs`, { grade: status.lag_seconds >= BEHIND_SECONDS ? "warn" : "" });
    } else if (followers.length) {
      const late = Math.max(...followers.map((each) => largest(each.lag_seconds)));
      const waiting = followers.filter((each) => each.stand_by).length;
      this.#tile("Followers", number(followers.length), `${number(waiting)} stand by; the last is ${span(late * 1000)} behind`, { grade: late >= BEHIND_SECONDS ? "warn" : "" });
    }
    this.#tile("Answer", span(late), "from the daemon to this page", { grade: late > SLOW_MILLIS ? "warn" : "" });
    this.#tile("Memory", bytes(status.memory_bytes), `${bytes(status.memory_accounted_bytes)} of ${bytes(status.memory_limit)} in use (${number(used * 100)} %)`, {
      grade: used > 0.9 ? "bad" : used > 0.7 ? "warn" : "",
    });
    this.#tile("Disk", bytes(status.disk_bytes), status.disk_full ? "full" : `epochs from ${number(status.oldest_epoch)}, ${number(status.waiting_epochs)} to write`, {
      grade: status.disk_full ? "bad" : "",
    });
    this.#tile("Rules", number(status.rules), `${number(status.rules_suspended)} suspended, ${span(Number(status.rules_milliseconds ?? 0))} of work`, {
      grade: status.rules_suspended ? "bad" : "",
    });
    this.#tile("Topics", number(status.topics), `${number(status.replays_reading)} replays read the log`);
  }

  #tile(name, figure, more, { line = null, grade = "" } = {}) {
    let tile = this.tiles.get(name);
    if (!tile) {
      const parts = [h("div", { class: "name" }, name), h("div", { class: "figure" }), h("div", { class: "more" })];
      tile = { element: h("div", { class: "tile", "data-tile": name }, ...parts), parts, path: null };
      if (line) {
        const [picture, path] = sparkline(name);
        tile.path = path;
        tile.element.append(picture);
      }
      this.tiles.set(name, tile);
      this.place.append(tile.element);
    }
    tile.element.className = `tile ${grade}`;
    tile.parts[1].textContent = figure;
    tile.parts[2].textContent = more;
    if (line) tile.path.setAttribute("d", drawn(line));
  }
}

function push(line, value) {
  line.push(value);
  if (line.length > POINTS) line.shift();
}

/** Returns the mean of the last three seconds. */
function rate(line) {
  const last = line.slice(-3);
  return last.length ? number(last.reduce((sum, each) => sum + each, 0) / last.length) : "–";
}

const SVG = "http://www.w3.org/2000/svg";

function sparkline(name) {
  const picture = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  picture.setAttribute("viewBox", `0 0 ${POINTS - 1} 28`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${name}, the last minute`);
  path.setAttribute("class", "spark");
  picture.append(path);
  return [picture, path];
}

function drawn(line) {
  const most = Math.max(1, ...line);
  const from = POINTS - line.length;
  return line.map((value, at) => `${at ? "L" : "M"}${from + at} ${(26 - (24 * value) / most).toFixed(1)}`).join("");
}
