// The commands of the conformance kit in the verbs of the JavaScript client, wherever that runs: README.md of the kit has
// the commands and events.

/** Returns what carries out a command with a client, module `d`; `tell` takes events, `transports` are by protocol. */
export function driver(d, tell, transports = {}) {
  let now = 0;
  const begin = () => {
    const number = ++now;
    return session(d, (event) => number === now && tell(event), transports);
  };
  let carryOut = begin();
  return (command) => {
    if (command.do !== "forget") return carryOut(command);
    carryOut = begin(); // and what a client of those before still does is told no more
    return tell({ of: "forget", done: true });
  };
}

function session(d, tell, transports) {
  let space = null;
  const claims = new Map();
  const observations = new Map();
  const subscriptions = new Map();
  const publications = new Map();

  const codeOf = (error) => error.code || error.name.replace(/(?<=[a-z])(?=[A-Z])/g, "-").toLowerCase();
  const report = (of, promise, shown) =>
    promise.then(
      (value) => tell({ of, ...shown(value) }),
      (error) => {
        if (!(error instanceof d.DataspaceError)) throw error;
        const found = error instanceof d.ExpectationFailed ? { found: d.toJson(error.found) } : {};
        tell({ of, error: codeOf(error), text: error.message, ...found });
      },
    );
  const rows = (list) => list.map((row) => row.map(d.toJson));
  const changes = (epoch) =>
    epoch === undefined
      ? { end: true }
      : {
          changes: {
            number: epoch.number,
            first: epoch.first,
            added: rows(epoch.added),
            messages: rows(epoch.messages),
            removed: rows(epoch.removed),
            lost: epoch.lost,
          },
        };

  function fill(draft, actions) {
    for (const [verb, ...rest] of actions) {
      if (verb === "send") draft.send(d.fromJson(rest[0]));
      else if (verb === "assert") claims.set(rest[0], draft.assert(d.fromJson(rest[1])));
      else if (verb === "replace") draft.replace(claims.get(rest[0]), d.fromJson(rest[1]));
      else if (verb === "retract") draft.retract(claims.get(rest[0]));
    }
  }

  const expectations = {
    absent: (pattern) => d.absent(pattern),
    exactly: (pattern, found) => d.exactly(pattern, found.map((row) => row.map(d.fromJson))),
    unchanged: (pattern, since) => d.unchanged(pattern, { since }),
  };
  const expected = (list) => list.map(([kind, ...rest]) => expectations[kind](...rest));

  const topicEpoch = (epoch) =>
    epoch === undefined ? { end: true } : { time: epoch.time, items: epoch.items.map(d.toJson), crashed: epoch.crashed };

  const steps = {
    send: (publication, items, at = null) => publication.send(items.map(d.fromJson), { at }),
    finish: (publication, items, then) => publication.finish(items.map(d.fromJson), then),
    advance: (publication, time) => publication.advance(time),
    hold: async (publication, time) => void publication.capabilities.push(await publication.hold(time)),
    release: (publication, at) => publication.capabilities[at].release(),
    flush: (publication) => publication.flush(),
    close: (publication) => publication.close(),
    crash: async (publication, reason) => publication.crash(reason),
  };

  const commands = {
    connect({ url, options }) {
      const transport = transports[new URL(url, "ws://page").protocol];
      const onConnection = ({ change }) => tell({ of: "connection", change });
      const connected = d.connect(url, { ...options, transport, onConnection });
      return report("connect", connected.then((made) => (space = made)), () => ({ done: true }));
    },
    turn({ as, actions, expects = [], traceparent }) {
      const expect = expected(expects);
      return report(as, space.turn((draft) => fill(draft, actions), { expect, traceparent }), (epoch) => ({ epoch }));
    },
    put: ({ as, value, by, traceparent }) =>
      report(as, space.put(d.fromJson(value), { by, traceparent }), (epoch) => ({ epoch })),
    first: ({ as, pattern, options }) => report(as, space.first(pattern, options), (row) => ({ row: row.map(d.toJson) })),
    observe: ({ as, pattern, options }) => observations.set(as, space.observe(pattern, options)),
    read: ({ of }) => report(of, observations.get(of).read(), changes),
    waiting: ({ of }) => tell({ of, ...observations.get(of).waiting }),
    stop: ({ of }) => observations.get(of).close(),
    matches: ({ as, pattern }) => report(as, space.matches(pattern), (found) => ({ rows: rows(found) })),
    request: ({ as, verb, arguments: given }) =>
      report(as, space.request(verb, d.fromJson(given)), (answer) => ({ answer: d.toJson(answer) })),
    subscribe({ as, topic, options }) {
      const began = space.subscribe(topic, options);
      return report(as, began, (made) => ({ partitions: subscriptions.set(as, made).get(as).partitions }));
    },
    epoch: ({ of }) => report(of, subscriptions.get(of).read(), topicEpoch),
    frontier: ({ of }) => tell({ of, frontier: subscriptions.get(of).frontier }),
    unsubscribe: ({ of }) => subscriptions.get(of).close(),
    publish({ as, topic, options }) {
      const joined = space.publish(topic, options);
      return report(as, joined, (made) => ({ time: publications.set(as, made).get(as).time, name: made.name }));
    },
    step({ of, step: [verb, ...rest] }) {
      return report(of, steps[verb](publications.get(of), ...rest), () => ({ done: verb }));
    },
    close: () => report("close", space.close(), () => ({ done: true })),
  };

  return (command) => commands[command.do](command);
}
