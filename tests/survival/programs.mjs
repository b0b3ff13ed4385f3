// The programs of `with_async.py` in JavaScript: `node programs.mjs MODULE TRANSPORT PROGRAM URLS TAG GRACE`.
// Prints how many messages `sent(TAG, n)` it has sent; an error ends it.
const [, , module, carrier, program, urls, tag, grace] = process.argv;
const { absent, connect, DeliveryLost, ExpectationFailed, record } = await import(module);
const { tcp } = await import(carrier);
const options = { transport: tcp, wait: 30_000, heartbeat: 1000, grace: Number(grace) * 1000 };
const pattern = (label, ...rest) => `${label}(${[JSON.stringify(tag), ...rest].join(", ")})`;
const same = (found, wanted) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
};

const programs = {
  async facts(space) {
    const seen = space.observe(pattern("present", "$who"));
    same((await seen.read()).added, []);
    const alice = await space.assert(record("present", tag, "Alice"));
    await alice.replace(record("present", tag, "Ben"));
    await space.send(record("present", tag, "hi"));
    const state = new Set();
    const messages = [];
    for await (const epoch of seen) {
      for (const [who] of epoch.added) state.add(who);
      for (const [who] of epoch.messages) messages.push(who);
      for (const [who] of epoch.removed) state.delete(who);
      if (state.size === 1 && state.has("Ben") && messages.length) break;
    }
    same(messages, ["hi"]);
    await alice.retract();
    same(await space.matches(pattern("present", "$who")), []);
    await space.send(record("sent", tag, 0));
    await space.sync();
    return 1;
  },
  async turns(space) {
    const fill = (draft) => {
      draft.assert(record("new", tag), { owner: "people" });
      draft.send(record("sent", tag, 0));
    };
    await space.turn(fill, { expect: [absent(pattern("new"))] });
    try {
      await space.turn(fill, { expect: [absent(pattern("new"))] });
    } catch (error) {
      if (!(error instanceof ExpectationFailed)) throw error;
    }
    await space.put(record("config", tag, 7), { owner: "people" });
    await space.put(record("config", tag, 9), { owner: "people" });
    same(await space.matches(pattern("config", "$n")), [[9]]);
    same(await space.first(pattern("config", "$n")), [9]);
    await space.turn((draft) => draft.withdraw(pattern("config", "_"), { owner: "people" }));
    same(await space.matches(pattern("config", "$n")), []);
    await space.status();
    await space.request("frontier", { after: 0 });
    return 1;
  },
  async live(space) {
    const where = await space.live(pattern("present", "$who", "$room"), "who").ready;
    const ann = await space.assert(record("present", tag, "Ann", "hall"));
    const moved = new Promise((resolve) => where.subscribe((map) => map.get("Ann")?.room === "attic" && resolve()));
    await ann.replace(record("present", tag, "Ann", "attic"));
    await moved;
    same([...where.keys()], ["Ann"]);
    return 0;
  },
  async jobs(space) {
    const jobs = await space.consume(pattern("job", "$id"), { group: `w-${tag}`, inFlight: 2 }).ready;
    for (let n = 0; n < 3; n++) await space.send(record("job", tag, n));
    let done = 0;
    for await (const job of jobs) {
      try {
        if (job.named.id === 0) {
          await space.turn((draft) => {
            draft.assert(record("result", tag, 0), { owner: "results" });
            draft.send(record("sent", tag, 0));
          }, { done: [job] });
        } else if (job.named.id === 1 && job.attempt === 1) {
          await job.again();
          continue;
        } else {
          await job.extend();
          await job.done();
        }
      } catch (error) {
        if (!(error instanceof DeliveryLost) || options.grace) throw error;
        continue; // the session has ended with its connection, and the job comes again
      }
      if (++done === 3) break;
    }
    same(await space.matches(pattern("result", "$n")), [[0]]);
    return 1;
  },
  async topics(space) {
    const publication = await space.publish(tag, { durable: true, away: 30_000 });
    const feed = await space.subscribe(tag, { asOf: 0 });
    await publication.send(["a"]);
    await publication.advance(1);
    same((await feed.next()).value.items, ["a"]);
    await publication.finish(["b"], 2);
    await publication.flush();
    same((await feed.next()).value.items, ["b"]);
    feed.close();
    await publication.close();
    return 0;
  },
};

const space = await connect(urls.split(","), options);
const sent = await programs[program](space);
await space.close();
console.log(sent);
