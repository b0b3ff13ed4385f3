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

export default {
  name: "Sessions",
  key: "s",
  mount(place, app) {
    let sessions = [];
    let picked = app.params.get("session");
    const mayEnd = app.may("administer");
    let before = ""; // what the panel is about, so that it is made anew only for another
    let seen = null;

    const mine = (each) => [app.space, app.system].some((client) => client?.welcome.session === each.session);

    const list = table({
      label: "Sessions",
      columns: [
        { title: "Session", width: "4.25rem", align: "right", sort: (each) => Number(each.session) },
        { title: "Name", width: "minmax(6rem, 1fr)", sort: (each) => each.name },
        { title: "Space", width: "4rem", sort: (each) => each.space },
        { title: "State", width: "6.75rem", sort: (each) => each.state },
        { title: "Turns/s", width: "4.5rem", align: "right", sort: (each) => Number(each.turns_per_second ?? 0) },
        { title: "In/s", width: "5rem", align: "right", sort: (each) => Number(each.received_bytes_per_second ?? 0) },
        { title: "Out/s", width: "5rem", align: "right", sort: (each) => Number(each.sent_bytes_per_second ?? 0) },
        { title: "Streams", width: "4.5rem", align: "right", sort: (each) => Number(each.streams ?? 0) },
        { title: "Backlog", width: "4.5rem", align: "right", sort: (each) => Number(each.backlog ?? 0) },
        { title: "Lag", width: "4.5rem", align: "right", sort: (each) => Number(each.lag_seconds ?? 0) },
        { title: "Memory", width: "5rem", align: "right", sort: (each) => Number(each.memory_bytes ?? 0) },
        { title: "Principal", width: "minmax(9rem, 1fr)", sort: (each) => each.principal },
      ],
      row: (each) =>
        each.state === "connected"
          ? [
              String(each.session),
              mine(each) ? `this page (${each.name})` : each.name,
              each.space,
              { text: "● connected", class: "good" },
              number(each.turns_per_second),
              bytes(each.received_bytes_per_second),
              bytes(each.sent_bytes_per_second),
              number(each.streams),
              number(each.backlog),
              { text: span(Number(each.lag_seconds) * 1000), class: Number(each.lag_seconds) >= BEHIND ? "warn" : "" },
              bytes(each.memory_bytes),
              each.principal,
            ]
          : [String(each.session), each.name, each.space, { text: "○ suspended", class: "warn" }, "", "", "", "", "", "", "", each.principal],
      key: (each) => String(each.session),
      empty: app.may("inspect") ? "No session. A client that connects appears here at once." : "Sessions are shown to a token with the right inspect.",
      onpick: (each) => {
        picked = String(each.session);
        app.keep({ session: picked });
        detail();
      },
    });
    const left = h("p", { class: "note", hidden: true });
    const side = h("div", { class: "side", id: "session" });
    const dialog = h("dialog", { id: "end-session", "aria-labelledby": "end-title" });
    replace(place, h("div", { class: "split" }, h("div", { class: "stack" }, list.element, left), side), dialog);
    detail();
    if (!app.may("inspect")) return () => list.dispose();

    async function look() {
      sessions = await app.space.request("sessions", { most: MOST });
      list.set(sessions);
      const there = seen?.rows.size ?? sessions.length;
      write(left, sessions.length >= MOST ? leftOut(Math.max(1, there - MOST), "sessions", MOST) : "");
      detail();
    }

    function detail() {
      const each = sessions.find(({ session }) => String(session) === picked) ?? null;
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
          ? h("p", { class: "buttons" }, h("button", { type: "button", id: "end", class: "danger", onclick: () => confirmEnd(each) }, `End session ${each.session}…`))
          : h("p", { class: "note" }, "To end a session needs a token with the right administer.");
      replace(side, panel(`Session ${each.session}`, { id: "session-about" }, about(parts), button));
    }

    function confirmEnd(each) {
      const called = `session ${each.session}${each.name ? ` (${each.name})` : ""}`;
      const end = attempt(app, async () => {
        dialog.close();
        await app.space.request("end-session", { session: each.session });
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
      list.dispose();
    };
  },
};
