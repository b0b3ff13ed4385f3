/**
 * The inspector: connects, asks for a token where the daemon wants one, and shows one view at a time.
 *
 * A view is `{name, key, mount(place, app)}`; what `mount` returns ends it. All that views show comes over two
 * WebSockets, one to the space that was picked and one to `system`, which stay while views change.
 */

import { Broken, Closed, DataspaceError, ProtocolError, connect } from "../static/dataspace.js";
import { h, replace } from "./dom.js";
import { bindKeys } from "./keys.js";
import { bindTheme } from "./theme.js";
import { VIEWS } from "./views.js";

const TOKEN = "dataspace-token";
const GRACE = 30_000;
const SHARE = 10;
const NOW_MILLIS = 1000;
const PAUSES = [250, 500, 1000, 2000, 4000];

const byId = (id) => document.getElementById(id);
const [nav, place, problem, status, connection, picker] = ["nav", "view", "problem", "status", "connection", "space"].map(byId);

let entered = 0; // counts connections: what belongs to an older one is dropped
let clients = null; // {space, system, rights, name}
let mounted = null; // {view, end, query}
let isUp = false;
let stopNow = null; // ends what keeps the epoch in the footer
const last = new Map(); // view -> what it showed when it was left

// -- where the reader is: #/name?param=… --

function here() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const view = VIEWS.find((each) => each.name.toLowerCase() === path.toLowerCase()) ?? VIEWS[0];
  return { view, params: new URLSearchParams(query) };
}

/** Goes to a view, without parameters to what it showed last; the space that was picked stays. */
function go(name, params = null) {
  const query = new URLSearchParams(params ?? last.get(name.toLowerCase()) ?? "");
  const space = here().params.get("space");
  if (!params) query.delete("space");
  if (space && !query.has("space")) query.set("space", space);
  const said = query.toString();
  location.hash = `#/${name.toLowerCase()}${said ? `?${said}` : ""}`;
}

// -- what views use --

function appFor(params) {
  const ours = clients;
  return {
    space: ours.space,
    system: ours.system,
    /** What the connection is called: the name of the dataspace. */
    spaceName: ours.name,
    /** Sent as a bearer token where a view makes a request over HTTP; empty where none is needed. */
    get token() {
      return sessionStorage.getItem(TOKEN) ?? "";
    },
    params,
    go,
    say,
    fail,
    /** Hides what went wrong before. */
    calm: () => (problem.hidden = true),
    /** Whether the token has all of a right, as `rights` of the daemon's status says. */
    may: (right) => ours.rights[right],
    isUp: () => isUp && ours === clients,
    poll,
    /** Notes what the view shows in the address, without mounting it again. */
    keep(changes) {
      const { view, params: now } = here();
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === "") now.delete(name);
        else now.set(name, value);
      }
      const query = now.toString();
      history.replaceState(null, "", `#/${view.name.toLowerCase()}${query ? `?${query}` : ""}`);
      if (mounted) mounted.query = query;
    },
  };
}

function say(text) {
  status.textContent = text;
}

/** Shows what went wrong, with its code and what to do; a lost connection is shown beside the space's name anyway. */
function fail(error) {
  if (error instanceof Broken || error instanceof Closed) return;
  const code = error instanceof DataspaceError ? error.code : "";
  const help = HELP[code];
  replace(
    problem,
    h("span", { class: "problem-text" }, code ? h("code", {}, code) : null, ` ${error.text ?? error.message ?? error}`, help ? ` – ${help}` : ""),
    h("button", { type: "button", onclick: () => (problem.hidden = true) }, "Dismiss"),
  );
  problem.hidden = false;
  if (!(error instanceof DataspaceError)) console.error(error);
}

const HELP = {
  "not-allowed": "this needs a token with more rights: Token… in the list of keys (?)",
  limit: "narrow the pattern, or raise the limit that is named",
  "epoch-gone": "the log does not go back so far any more",
  "disk-full": "make room on the daemon's disk",
};

/**
 * Calls `look` now and each so many milliseconds, after its answer has come, while the page is in sight.
 *
 * Where answers take long the pauses are longer, so that pages take a small share of a busy daemon, however many they are.
 */
function poll(pause, look) {
  let over = false;
  let timer = 0;
  const turn = async () => {
    timer = 0;
    const began = performance.now();
    if (!document.hidden && isUp) {
      try {
        await look();
      } catch (error) {
        if (!over) fail(error);
      }
    }
    if (!over) timer = setTimeout(turn, Math.max(pause, SHARE * (performance.now() - began)));
  };
  turn();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

/** Shows the newest epoch, once a second. */
function tellNow(space) {
  stopNow?.();
  stopNow = poll(NOW_MILLIS, async () => {
    const { epoch } = await space.request("frontier", { after: 0 });
    byId("now").textContent = `epoch ${epoch}`;
  });
}

// -- the connection --

const SAID = {
  connecting: "connecting…",
  up: "connected",
  lost: "connection lost, reconnecting…",
  refused: "no session",
  ended: "session ended",
};

function show(state, more = "") {
  isUp = state === "up";
  connection.dataset.state = state;
  connection.textContent = SAID[state];
  connection.title = more;
  document.documentElement.dataset.connection = state;
}

const address = new URL("../ws", import.meta.url).href;

const settings = (space, more = {}) => ({
  space,
  name: "inspector",
  token: sessionStorage.getItem(TOKEN) ?? "",
  ...more,
});

async function enter() {
  const ours = ++entered;
  leave();
  show("connecting");
  const name = here().params.get("space") ?? "main";
  for (let attempt = 0; ours === entered; attempt++) {
    try {
      const space = await connect(address, settings(name, { grace: GRACE, onConnection: (event) => changed(ours, event) }));
      if (ours !== entered) return void space.close();
      const found = await space.status();
      const { rights } = found;
      const system = name === "system" ? space : looksAtSystem(rights) ? await connect(address, settings("system")).catch(() => null) : null;
      if (ours !== entered) return void [space, system].map((each) => each?.close());
      clients = { space, system, rights, name };
      offer(name, found.spaces);
      show("up");
      mount(true);
      if (name !== "system") tellNow(space); // which has no log
      else byId("now").textContent = "";
      say(`connected to ${name}`);
      return;
    } catch (error) {
      if (ours !== entered) return;
      if (error instanceof ProtocolError) return refused(error);
      show("lost", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(attempt, PAUSES.length - 1)]));
  }
}

/** Whether the space `system` is shown to the token; what is not is not tried, since each refusal is a line of the audit log. */
const looksAtSystem = ({ inspect, spaces }) => inspect && (spaces === true || spaces.includes("system"));

function leave() {
  stopNow?.();
  unmount();
  const before = clients;
  clients = null;
  for (const each of new Set([before?.space, before?.system])) each?.close();
}

/** Hears what becomes of the connection to the space; the client itself comes back, and its streams go on. */
function changed(ours, { change, reason = "" }) {
  if (ours !== entered || change === "connected") return;
  if (change === "lost") {
    show("lost", reason);
    say(`The connection to the daemon is lost (${reason}). The page reconnects by itself.`);
  } else if (change === "ended") {
    show("ended", reason);
    say(reason);
    fail(new Error(`${reason}. Reload the page to begin a new session.`));
    if (/unauthorized/.test(reason)) askToken(reason);
  } else if (change !== "refused") {
    show("up");
    say(change === "another-space" ? "reconnected, to another space: the daemon began anew" : "reconnected: nothing was missed");
  }
}

function refused(error) {
  show("refused", error.message);
  if (error.code === "unauthorized") return askToken(sessionStorage.getItem(TOKEN) ? error.text : "This daemon needs a token.");
  fail(error);
  if (error.code === "no-space" && here().params.get("space")) {
    offer(here().params.get("space"), null);
  }
  return undefined;
}

function offer(name, spaces) {
  const known = spaces && typeof spaces === "object" ? Object.keys(spaces) : [];
  const names = [...new Set([...known, name, "main"])].sort();
  if (!names.includes("system")) names.push("system");
  replace(picker, ...names.map((each) => h("option", { value: each }, each)));
  picker.value = name;
}

picker.addEventListener("change", () => {
  const { view } = here();
  location.hash = `#/${view.name.toLowerCase()}?${new URLSearchParams({ space: picker.value })}`;
});

// -- the token: kept for this tab alone, sent in the hello, never a part of an address --

function askToken(reason = "") {
  const dialog = byId("token");
  const input = h("input", { id: "token-input", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  replace(
    dialog,
    h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          sessionStorage.setItem(TOKEN, input.value.trim());
          dialog.close();
          problem.hidden = true;
          enter();
        },
      },
      h("h2", { id: "token-title" }, "Token"),
      reason ? h("p", { class: "bad" }, reason) : null,
      h("label", { for: "token-input" }, "Token of this daemon"),
      input,
      h("p", { class: "note" }, "It is kept for this tab alone, until the tab is closed. To look at everything it needs the rights inspect and observe."),
      h(
        "p",
        { class: "buttons" },
        h("button", { type: "submit", class: "primary" }, "Connect"),
        h(
          "button",
          {
            type: "button",
            onclick: () => {
              sessionStorage.removeItem(TOKEN);
              dialog.close();
            },
          },
          "Forget the token",
        ),
      ),
    ),
  );
  if (!dialog.open) dialog.showModal();
  input.focus();
}

// -- views --

function unmount() {
  const before = mounted;
  mounted = null;
  say(""); // what a view has said is of that view
  if (before) last.set(before.view.name.toLowerCase(), before.query);
  try {
    before?.end?.();
  } catch (error) {
    console.error(error);
  }
  replace(place);
}

function mount(anyway = false) {
  const { view, params } = here();
  const query = params.toString();
  if (!anyway && mounted?.view === view && mounted.query === query) return;
  if (!clients) return;
  unmount();
  problem.hidden = true;
  place.dataset.view = view.name.toLowerCase();
  document.title = `${view.name} – dataspace inspector`;
  byId("title").textContent = `${view.name} of the space ${clients.name}`;
  for (const link of nav.children) {
    if (link.dataset.view === view.name.toLowerCase()) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  mounted = { view, query, end: null };
  const ours = mounted;
  try {
    const end = view.mount(place, appFor(params));
    ours.end = end;
  } catch (error) {
    fail(error);
  }
}

replace(
  nav,
  ...VIEWS.map((view) =>
    h(
      "a",
      {
        href: `#/${view.name.toLowerCase()}`,
        "data-view": view.name.toLowerCase(),
        title: `${view.name} (${view.key})`,
        onclick: (event) => {
          event.preventDefault();
          go(view.name);
        },
      },
      view.name,
    ),
  ),
);

addEventListener("hashchange", () => {
  const wanted = here().params.get("space") ?? "main";
  if (clients && wanted !== clients.name) enter();
  else mount();
});
addEventListener("pagehide", () => leave());
addEventListener("pageshow", (event) => event.persisted && enter());

bindTheme(byId("theme"));
bindKeys({ views: VIEWS, go, askToken, place, button: byId("help"), dialog: byId("keys"), theme: byId("theme") });
enter();
