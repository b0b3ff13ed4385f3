/**
 * Topics: partitions and frontiers, and where producers and readers are.
 *
 * Which topics there are, and who publishes and subscribes, comes live from the space `system`; frontiers and what waits
 * from the request `lookup`, each two seconds, for the topics that are listed first and for the one that is picked.
 */

import { text } from "../../static/dataspace.js";
import { bytes } from "../dom.js";
import { MOST_ROWS, about, follow, h, leftOut, number, panel, replace, write } from "../common.js";
import { table } from "../table.js";

const PAUSE = 2000;
const ASKED = 40;
const MOST_LISTED = 64;
const EMPTY = "There is no topic. It appears with the first publisher: space.publish(\"readings\") in Python, or dataspace topic publish readings.";

export default {
  name: "Topics",
  key: "t",
  mount(place, app) {
    const found = new Map(); // from names to the answers of lookup
    let picked = app.params.get("topic");
    const looks = app.system && app.may("inspect");
    let topics = null;
    let publications = null;
    let subscriptions = null;
    let names = null;

    const list = table({
      label: "Topics",
      columns: [
        { title: "Topic", width: "minmax(7rem, 1fr)", sort: (each) => each.name },
        { title: "Kept", width: "5.5rem", sort: (each) => each.kept },
        { title: "Partitions", width: "5.5rem", align: "right", sort: (each) => Number(each.partitions) },
        { title: "Frontier", width: "minmax(5.5rem, 1fr)" },
        { title: "Producers", width: "5.5rem", align: "right", sort: (each) => each.producers },
        { title: "Readers", width: "4.5rem", align: "right", sort: (each) => each.readers },
        { title: "Batches", width: "4.5rem", align: "right", sort: (each) => Number(each.detail?.batches ?? 0) },
        { title: "State", width: "minmax(8.5rem, 1.3fr)" },
      ],
      row: (each) => [
        each.name,
        each.kept,
        number(each.partitions),
        each.detail?.frontiers ? frontierOf(each.detail) : "–",
        number(each.producers),
        number(each.readers),
        number(each.detail?.batches),
        state(each),
      ],
      key: (each) => each.name,
      empty: looks ? EMPTY : "Topics are shown to a token with the right inspect.",
      onpick: (each) => {
        picked = each.name;
        app.keep({ topic: picked });
        detail();
        look().catch(app.fail);
      },
    });
    const left = h("p", { class: "note", hidden: true });
    const side = h("div", { class: "side", id: "topic" });
    replace(place, h("div", { class: "split wide" }, h("div", { class: "stack" }, list.element, left), side));
    detail();
    if (!looks) return () => list.dispose();

    topics = follow(app, app.system, "topic($name, $id, $partitions, $dimensions)", show);
    publications = follow(app, app.system, "publication($topic, $partition, $producer, $session)", show);
    subscriptions = follow(app, app.system, "subscription($topic, $partition, $subscription, $session)", show);
    names = follow(app, app.system, "session($number, _, $name)", show);

    function entries() {
      const producers = counted(publications.rows, 2);
      const readers = counted(subscriptions.rows, 2);
      return [...topics.rows.values()]
        .sort(([one], [other]) => (one < other ? -1 : 1))
        .map(([name, id, partitions, dimensions]) => {
          const known = found.get(name);
          const answer = known?.id === id ? known : null;
          return {
            name,
            partitions,
            dimensions,
            detail: answer,
            kept: answer ? (answer.durable ? "on disk" : answer.retain ? "in memory" : "not") : "–",
            producers: producers.get(name)?.size ?? 0,
            readers: readers.get(name)?.size ?? 0,
          };
        });
    }

    function show() {
      const all = entries();
      list.set(all);
      write(left, leftOut(topics.leftOut, "topics", MOST_ROWS) || (!app.may("topics") && all.length ? "This token may use some topics alone: pick one of those for its frontiers." : "") || (all.length > ASKED ? `Frontiers are asked for the first ${ASKED} topics, and the one that is picked.` : ""));
      detail(all);
    }

    async function look() {
      const wanted = app.may("topics") ? [...topics.rows.values()].map(([name]) => name).sort().slice(0, ASKED) : [];
      if (picked && !wanted.includes(picked) && [...topics.rows.values()].some(([name]) => name === picked)) wanted.push(picked);
      const answers = await Promise.all(
        wanted.map(async (topic) => {
          try {
            return [topic, await app.space.request("lookup", { topic, detail: true })];
          } catch (error) {
            if (error.code === "no-topic" || error.code === "not-allowed") return [topic, null];
            throw error;
          }
        }),
      );
      found.clear();
      for (const [topic, answer] of answers) if (answer) found.set(topic, answer);
      show();
    }

    function detail(all = null) {
      const each = (all ?? (topics ? entries() : [])).find(({ name }) => name === picked);
      if (!each) {
        if (side.dataset.topic !== "") replace(side, panel("One topic", {}, h("p", { class: "note" }, "Pick a topic to see its partitions, their frontiers, producers and readers.")));
        side.dataset.topic = "";
        return;
      }
      side.dataset.topic = each.name;
      const { detail: known } = each;
      const session = (rows, at) => {
        const row = [...rows.values()].find((row) => row[0] === each.name && row[2] === at);
        if (!row) return "away";
        const name = [...names.rows.values()].find(([number]) => number === row[3])?.[1];
        return `${name || "session"} (${row[3]})`;
      };
      replace(
        side,
        panel(
          each.name,
          { id: "topic-about" },
          about([
            ["partitions", number(each.partitions)],
            ["dimensions of times", number(each.dimensions)],
            ["kept", known ? `${each.kept}${known.retain ? `, ${bytes(known.retain)} at most` : ""}` : null],
            ["held now", known?.retained_bytes === undefined ? null : bytes(known.retained_bytes)],
            ["complete epochs", known?.completed === undefined ? null : `${number(known.oldest)} to ${number(known.completed)}`],
            ["crashes of producers", known?.crashes === undefined ? null : number(known.crashes)],
          ]),
        ),
        known?.frontiers ? partitions(known) : h("p", { class: "note" }, "Frontiers come within two seconds."),
        known?.producing ? listed("Producers", known.producing, known.producers, (one) => [`${session(publications.rows, one.producer)}${one.name ? ` as ${one.name}` : ""}`, `partition ${one.partition}, holds ${times(one.holds)}`], "None. A topic that is kept on disk waits for the next one.") : null,
        known?.subscribing ? listed("Readers", known.subscribing, known.subscriptions, (one) => [session(subscriptions.rows, one.subscription), `${number(one.waiting)} messages wait (${bytes(one.waiting_bytes)}), ${number(one.taken)} taken`], "None. dataspace topic subscribe reads it.") : null,
      );
    }

    const end = app.poll(PAUSE, look);
    return () => {
      end();
      for (const each of [topics, publications, subscriptions, names]) each.end();
      list.dispose();
    };
  },
};

/** Returns how many different things there are for each topic in rows, told apart by one column. */
function counted(rows, column) {
  const sets = new Map();
  for (const row of rows.values()) {
    if (!sets.has(row[0])) sets.set(row[0], new Set());
    sets.get(row[0]).add(row[column]);
  }
  return sets;
}

const times = (some) => (some.length ? some.map((each) => text(each)).join(", ") : "nothing");

/** Returns the least times at or after which something may still come, over all partitions. */
function frontierOf({ frontiers }) {
  const all = [...new Map(frontiers.flatMap(({ lower }) => lower.map((each) => [text(each), each]))).values()];
  const least = all.filter((each) => !all.some((other) => other !== each && atOrBefore(other, each))).map((each) => text(each));
  return least.length ? `${least.slice(0, 3).join(", ")}${least.length > 3 ? " …" : ""}` : "complete";
}

/** True if a time is at or before another: in every place, where times have several. */
const atOrBefore = (one, other) => (Array.isArray(one) ? one.every((each, at) => each <= other[at]) : one <= other);

function state({ detail }) {
  if (!detail) return "";
  if (detail.full) return { text: "▲ publishers wait for a reader", class: "warn" };
  if (detail.crashes) return { text: `▲ ${number(detail.crashes)} producers crashed`, class: "warn" };
  return detail.producers === 0 ? "no producer" : "in use";
}

function partitions({ frontiers, partitions: count }) {
  const rows = frontiers.map((each) =>
    h("tr", { "data-partition": each.partition }, h("th", { scope: "row" }, each.partition), h("td", {}, each.lower.length ? times(each.lower) : "complete"), h("td", {}, each.upper.length ? times(each.upper) : "–"), h("td", {}, number(each.open_epochs)), h("td", {}, number(each.batches))),
  );
  return panel(
    "Partitions",
    { id: "partitions" },
    h("table", { class: "small" }, h("thead", {}, h("tr", {}, ...["", "frontier", "latest sent", "open", "batches"].map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, ...rows)),
    h("p", { class: "note" }, `Nothing before a frontier comes any more. ${leftOut(Number(count) - frontiers.length, "partitions", MOST_LISTED)}`),
  );
}

function listed(title, some, count, words, empty) {
  return panel(
    `${title} (${number(count)})`,
    { id: title.toLowerCase() },
    some.length
      ? h("ul", { class: "list" }, ...some.map((each) => h("li", {}, ...words(each).map((word, at) => h("div", { class: at ? "note" : "" }, word)))))
      : h("p", { class: "note" }, empty),
    count > some.length ? h("p", { class: "note" }, leftOut(count - some.length, title.toLowerCase(), MOST_LISTED)) : null,
  );
}
