/**
 * Cluster: the daemons of one store, which of them leads each space, how far others are behind, and the last take-overs.
 *
 * Live from the facts of the space `system`, which are the same at each daemon of the cluster.
 */

import { clock } from "../dom.js";
import { follow, h, leftOut, number, panel, replace, write } from "../common.js";
import { table } from "../table.js";

const MOST = 1000;
const NONE = "This daemon is in no cluster: its data is in a directory. Daemons that name one store in PostgreSQL are a cluster.";
const WHY = {
  lapsed: "its lease had run out",
  silent: "it stood still for a lease",
  ended: "it gave the space back",
  moved: "it handed the space over",
};

export default {
  name: "Cluster",
  key: "l",
  mount(place, app) {
    const looks = app.system && app.may("inspect");
    const members = table({
      label: "Daemons of the cluster",
      columns: [
        { title: "Daemon", width: "minmax(7rem, 1fr)", sort: (each) => each.name },
        { title: "State", width: "minmax(7.5rem, 1fr)", sort: (each) => each.state.text },
        { title: "Leads", width: "minmax(6rem, 1.4fr)", sort: (each) => each.leads.length },
        { title: "Behind", width: "minmax(6rem, 1fr)", sort: (each) => each.worst },
        { title: "Version", width: "5rem", sort: (each) => each.version },
        { title: "Address", width: "minmax(9rem, 1.6fr)", sort: (each) => each.url },
        { title: "Inspector", width: "minmax(9rem, 1.6fr)", sort: (each) => each.web },
      ],
      row: (each) => [each.name, each.state, each.leads.join(", "), each.behind, each.version, each.url, inspector(each.web)],
      key: (each) => `${each.name} ${each.url}`,
      rowName: (each) => each.name,
      empty: "No daemon.",
      most: MOST,
    });
    const spaces = table({
      label: "Spaces of the cluster",
      columns: [
        { title: "Space", width: "minmax(6rem, 1fr)", sort: (each) => each.name },
        { title: "Leader", width: "minmax(6rem, 1fr)", sort: (each) => each.leader.text },
        { title: "Term", width: "4.5rem", align: "right", sort: (each) => Number(each.term) },
        { title: "Since", width: "minmax(5.5rem, 0.8fr)", sort: (each) => Number(each.since) },
        { title: "Last take-over", width: "minmax(14rem, 3fr)" },
      ],
      row: (each) => [each.name, each.leader, number(each.term), clock(each.since), each.last],
      key: (each) => each.name,
      empty: "No space.",
      most: MOST,
    });
    const left = h("p", { class: "note", hidden: true });
    const none = h("p", { class: "note", id: "no-cluster", hidden: true });
    const both = h("div", { class: "stack", hidden: true }, panel("Daemons", { id: "members" }, members.element), panel("Spaces", { id: "leaders" }, spaces.element), left);
    replace(place, none, both);
    const dispose = () => [members, spaces].forEach((each) => each.dispose());
    if (!looks) {
      write(none, "The cluster is shown to a token with the right inspect.");
      return dispose;
    }

    const seen = {};
    const heard = new Set();
    for (const [name, pattern] of Object.entries(PATTERNS)) {
      seen[name] = follow(app, app.system, pattern, () => show(name), { most: MOST });
    }

    function show(name) {
      heard.add(name);
      if (heard.size < Object.keys(PATTERNS).length) return; // else a leader would be missing for a moment
      const there = rows("members").length > 0;
      write(none, there ? "" : NONE);
      both.hidden = !there;
      const leaders = new Map(rows("leaders").map((row) => [row[0], row]));
      members.set(rows("members").map((row) => memberOf(row, leaders)));
      const last = new Map(rows("takeovers").map((row) => [row[0], row]));
      spaces.set([...new Set([...leaders.keys(), ...last.keys()])].sort().map((space) => spaceOf(space, leaders.get(space), last.get(space))));
      write(left, leftOut(Object.values(seen).reduce((sum, each) => sum + each.leftOut, 0), "facts", MOST));
    }

    const rows = (name) => [...seen[name].rows.values()].sort(([one], [other]) => (one < other ? -1 : 1));

    function memberOf([name, url, web, version, lives], leaders) {
      const lags = rows("lags").filter(([follower]) => follower === name);
      const leads = [...leaders.values()].filter((row) => row[1] === name && row[2] === url).map(([space]) => space);
      const others = rows("differing").some((row) => row[0] === name && row[1] === url);
      return {
        name,
        url,
        web,
        version,
        leads: leads.sort(),
        worst: Math.max(0, ...lags.map((row) => Number(row[2]))),
        behind: lags.length ? { text: lags.map(([, space, seconds]) => `${space}: ${number(seconds)} s`).join(", "), class: "warn" } : "",
        state: !lives ? { text: "✗ gone", class: "bad" } : others ? { text: "▲ other settings", class: "warn" } : { text: "● living", class: "good" },
      };
    }

    return () => {
      Object.values(seen).forEach((each) => each.end());
      dispose();
    };
  },
};

const PATTERNS = {
  members: "member($name, $url, $web, $version, $lives)",
  leaders: "leader($space, $name, $url, $term, $since)",
  takeovers: "takeover($space, $term, $before, $after, $time, $why)",
  lags: "follower-lag($name, $space, $seconds)",
  differing: "cluster-differs($name, $url)",
};

function spaceOf(name, leader, takeover) {
  const [, by, , term, since] = leader ?? [];
  return {
    name,
    leader: leader ? { text: by, class: "good" } : { text: "✗ none", class: "bad" },
    term: term ?? takeover[1],
    since: since ?? 0,
    last: takeover ? said(takeover) : "",
  };
}

/** Returns who took over from whom, when and why: the daemon before is the one that the reason is about. */
function said([, term, before, after, time, why]) {
  return `${after || "a daemon"} took over from ${before || "another one"} at ${clock(time)} (term ${number(term)}): ${WHY[why] ?? why}`;
}

/** Returns a link to the inspector of a daemon, marked where it is this page's. */
function inspector(web) {
  if (!/^https?:\/\//.test(web)) return web;
  const isHere = URL.canParse(web) && new URL(web).origin === location.origin;
  return isHere ? `this page (${web})` : h("a", { href: web, rel: "noopener noreferrer" }, web);
}
