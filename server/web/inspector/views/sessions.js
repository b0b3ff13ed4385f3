/**
 * Sessions: who is connected, how much each sends and reads, what waits for it, and the way to end one.
 *
 * From the request `sessions`, each two seconds, and at once when a session comes or goes (space `system`).
 */

import { ago, bytes, span } from "../dom.js";
import { about, attempt, follow, h, leftOut, number, panel, replace, write } from "../common.js";
import { table } from "../table.js";

const PAUSE = 2000;
const MOST = 2000;
const BEHIND = 2;

const narrow = matchMedia("(max-width: 640px)");

/** Of one that is suspended there is no rate. */
const live = (said) => (each) => (each.state === "connected" ? said(each) : "");

/** Columns; a narrow page has the `essential` ones, and beside the panel of one session are those that are not `aside`. */
const COLUMNS = [
  { title: "Session", width: "4.5rem", align: "right", sort: (each) => Number(each.session), cell: (each) => each.id, essential: true },
  { title: "Name", width: "minmax(7rem, 3fr)", sort: (each) => each.name, cell: (each, isMine) => (isMine ? `this page (${each.name})` : each.name), essential: true },
  { title: "Space", width: "minmax(3.5rem, 1fr)", sort: (each) => each.space, cell: (each) => each.space },
  {
    title: "State",
    width: "6.75rem",
    sort: (each) => each.state,
    cell: (each) => (each.state === "connected" ? { text: "● connected", class: "good" } : { text: "○ suspended", class: "warn" }),
    essential: true,
  },
  { title: "Turns/s", width: "4.25rem", align: "right", sort: (each) => Number(each.turns_per_second ?? 0), cell: live((each) => number(each.turns_per_second)) },
  { title: "In/s", width: "5.25rem", align: "right", sort: (each) => Number(each.received_bytes_per_second ?? 0), cell: live((each) => bytes(each.received_bytes_per_second)), aside: true },
  { title: "Out/s", width: "5.25rem", align: "right", sort: (each) => Number(each.sent_bytes_per_second ?? 0), cell: live((each) => bytes(each.sent_bytes_per_second)), aside: true },
  { title: "Streams", width: "4.5rem", align: "right", sort: (each) => Number(each.streams ?? 0), cell: live((each) => number(each.streams)), aside: true },
  { title: "Backlog", width: "4.5rem", align: "right", sort: (each) => Number(each.backlog ?? 0), cell: live((each) => number(each.backlog)) },
  {
    title: "Lag",
    width: "4.5rem",
    align: "right",
    sort: (each) => Number(each.lag_seconds ?? 0),
    cell: live((each) => ({ text: span(Number(each.lag_seconds) * 1000), class: Number(each.lag_seconds) >= BEHIND ? "warn" : "" })),
    essential: true,
  },
  { title: "Memory", width: "5.25rem", align: "right", sort: (each) => Number(each.memory_bytes ?? 0), cell: live((each) => bytes(each.memory_bytes)), aside: true },
  { title: "Principal", width: "minmax(7rem, 1.5fr)", sort: (each) => each.principal, cell: (each) => each.principal },
];
const chosen = (isAlone) => COLUMNS.filter(({ essential, aside }) => (narrow.matches ? essential : isAlone || !aside));

export default {
  name: "Sessions",
  key: "s",
  mount(place, app) {
    let sessions = [];
    let picked = app.params.get("session");
    const mayEnd = app.may("administer");
    let before = ""; // what the panel is about, so that it is made anew only for another
    let seen = null;

    let columns = chosen(!picked);

    const mine = (each) => [app.space, app.system].some((client) => client?.welcome.session === each.session);

    const list = table({
      label: "Sessions",
      columns,
      row: (each) => columns.map(({ cell }) => cell(each, mine(each))),
      key: (each) => each.id,
      empty: app.may("inspect") ? "No session. A client that connects appears here at once." : "Sessions are shown to a token with the right inspect.",
      onpick: (each) => {
        picked = each.id;
        app.keep({ session: picked });
        detail();
      },
    });
    const left = h("p", { class: "note", hidden: true });
    const side = h("div", { class: "side", id: "session" });
    const dialog = h("dialog", { id: "end-session", "aria-labelledby": "end-title" });
    const split = h("div", { class: "split" }, h("div", { class: "stack" }, list.element, left), side);
    replace(place, split, dialog);
    const resized = () => {
      const wanted = chosen(split.classList.contains("alone"));
      if (wanted.length === columns.length) return;
      list.columns((columns = wanted));
    };
    narrow.addEventListener("change", resized);
    const dispose = () => {
      narrow.removeEventListener("change", resized);
      list.dispose();
    };
    detail();
    if (!app.may("inspect")) return dispose;

    async function look() {
      sessions = await app.space.request("sessions", { most: MOST });
      list.set(sessions);
      const there = seen?.rows.size ?? sessions.length;
      write(left, sessions.length >= MOST ? leftOut(Math.max(1, there - MOST), "sessions", MOST) : "");
      detail();
    }

    function detail() {
      const each = sessions.find(({ id }) => id === picked) ?? null;
      split.classList.toggle("alone", !each && !picked); // nothing is beside the list until one is picked
      resized();
      if (!each) {
        before = "";
        const gone = picked && sessions.length ? `Session ${picked} has ended. ` : "";
        replace(side, panel("One session", {}, h("p", { class: "note" }, `${gone}Pick a session to see more of it${mayEnd ? ", and to end it" : ""}.`)));
        return;
      }
      const parts = [
        ["name", each.name],
        ["principal", each.principal],
        ["space", each.space],
        ["address", each.address],
        ["encryption", each.state === "connected" ? each.tls || "none" : null],
        ["connected", each.since ? ago(each.since) : null],
        ["grace", span(Number(each.grace) * 1000)],
        ["turns", number(each.turns)],
        ["received", bytes(each.received_bytes)],
        ["sent", bytes(each.sent_bytes)],
        ["requests open", number(each.requests)],
        ["streams open", number(each.streams)],
        ["waits for it", each.backlog === undefined ? null : `${number(each.backlog)} values, ${bytes(each.waiting_bytes)}`],
        ["behind", each.lag_epochs === undefined ? null : `${number(each.lag_epochs)} epochs, ${span(Number(each.lag_seconds) * 1000)}`],
        ["memory", each.memory_bytes === undefined ? null : `about ${bytes(each.memory_bytes)}`],
      ];
      const shape = `${picked} ${each.state}`;
      if (shape === before) {
        side.querySelector("dl.about").replaceWith(about(parts)); // the button, which may have the focus, stays
        return;
      }
      before = shape;
      const button = mine(each)
        ? h("p", { class: "note" }, "This page has this session.")
        : mayEnd
          ? h("p", { class: "buttons" }, h("button", { type: "button", id: "end", class: "danger", onclick: () => confirmEnd(each) }, `End session ${each.id}…`))
          : h("p", { class: "note" }, "To end a session needs a token with the right administer.");
      replace(side, panel(`Session ${each.id}`, { id: "session-about" }, about(parts), button));
    }

    function confirmEnd(each) {
      const called = `session ${each.id}${each.name ? ` (${each.name})` : ""}`;
      const end = attempt(app, async () => {
        dialog.close();
        await app.space.request("end-session", { session: each.id });
        app.say(`ended ${called}`);
        await look();
      });
      replace(
        dialog,
        h("h2", { id: "end-title" }, `End ${called}?`),
        h(
          "p",
          {},
          each.state === "connected"
            ? `Its connection${each.address ? ` from ${each.address}` : ""} is closed with the code ended, and its ${number(each.streams)} streams stop. `
            : "It is suspended; its client cannot come back to it. ",
          "The facts that it asserts are retracted at once, for all observers. Facts of durable owners and of leases stay. ",
          "Clients of this project do not reconnect after that by themselves.",
        ),
        h(
          "p",
          { class: "buttons" },
          h("button", { type: "button", id: "end-yes", class: "danger", onclick: end }, `End ${called}`),
          h("button", { type: "button", id: "end-no", onclick: () => dialog.close() }, "Leave it"),
        ),
      );
      dialog.showModal();
      dialog.querySelector("#end-no").focus();
    }

    seen = app.system ? follow(app, app.system, "session($number)", () => look().catch(app.fail)) : null;
    const end = app.poll(PAUSE, look);
    return () => {
      end();
      seen?.end();
      dialog.close();
      dispose();
    };
  },
};
