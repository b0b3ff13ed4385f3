"""Streams of the JavaScript client, and requests that may be repeated, go on after ``store-away``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from dataspace.transport.addresses import parse_url
from server import web
from server.config.model import Config
from server.daemon.serve import serve
from tests.conformance.driving import MODULE, node
from tests.conformance.vectors import FOLDER

pytestmark = pytest.mark.slow

STATIC = Path(web.__file__).parent / "static"

PROGRAM = """
import { connect, record } from "%s";
import { tcp } from "%s";
import { pack } from "%s";
import { ABORT, DENIED, ERROR, OPEN, REQUEST } from "%s";
import { unpack } from "%s";
const [, , url] = process.argv;
let away = () => {};
let denials = 0; // of the next requests
let asked = 0;
const failing = (at, heard) => {
  const inner = tcp(at, heard);
  const streams = [];
  away = (code) => {
    for (const number of streams.splice(0)) {
      inner.send(pack([ABORT, number, "", false])); // the daemon has ended the stream
      heard.message(pack([ERROR, number, code, "the database is away"]));
    }
  };
  return {
    send: (bytes) => {
      const packet = unpack(new Uint8Array(bytes));
      if (packet[0] === OPEN) streams.push(packet[1]);
      if (packet[0] === REQUEST) asked += 1;
      if (packet[0] === REQUEST && denials-- > 0) {
        queueMicrotask(() => heard.message(pack([DENIED, packet[1], "store-away", "it is away"])));
        return;
      }
      inner.send(bytes);
    },
    close: () => inner.close(),
  };
};
const writer = await connect(url, { transport: tcp });
const space = await connect(url, { transport: failing });
const told = {};
for (const options of [{}, { durable: true }, { policy: "wait" }, { snapshot: false }]) {
  const label = `p${Object.keys(told).length}`;
  const seen = space.observe(`${label}($x)`, options);
  await space.sync();
  const came = [];
  const read = async (count) => {
    while (came.length < count) {
      const { value, done } = await seen.next();
      if (done) return;
      came.push(...value.added.map(([x]) => x));
    }
  };
  await writer.assert(record(label, 1));
  await read(1);
  away("store-away");
  await writer.assert(record(label, 2));
  await read(2);
  away("store-away");
  away("store-away");
  await writer.assert(record(label, 3));
  await read(3);
  seen.close();
  told[label] = came;
}
const left = space.observe("left($x)");
await space.sync();
away("store-away");
left.close(); // while it waits to be opened again
const other = space.observe("other($x)");
await space.sync();
away("no-right");
const end = async (stream) => {
  try {
    while (!(await stream.next()).done); // the state that came before
    return "done";
  } catch (error) {
    return error.code || error.name;
  }
};
told.other = await end(other);
const attempts = async (verb, args, count) => {
  [asked, denials] = [0, count];
  const said = await space.request(verb, args).then(() => "answered", (error) => error.code);
  denials = 0;
  return [said, asked];
};
told.status = await attempts("status", {}, 2);
told.settle = await attempts("settle", { group: "g", done: [] }, 2);
const hasty = await connect(url, { transport: failing, timeout: 600 });
[asked, denials] = [0, 1e9];
told.hasty = await hasty.request("status").then(() => "answered", (error) => error.code);
told.repeated = asked > 1;
denials = 0;
await hasty.close();
const last = space.observe("last($x)");
await space.sync();
away("store-away");
await space.close();
told.last = await end(last);
await writer.close();
console.log(JSON.stringify(told));
"""


async def test_streams_and_requests_go_on(tmp_path: Path, nursery: trio.Nursery) -> None:
    (address,) = await nursery.start(serve, Config(listen=("tcp:127.0.0.1:0",), data=tmp_path / "data"))
    program = tmp_path / "program.mjs"
    files = [STATIC / f"{name}.js" for name in ("packing", "packets", "unpacking")]
    places = [MODULE, FOLDER / "drivers" / "tcp.mjs", *files]
    program.write_text(PROGRAM % tuple(each.as_uri() for each in places))
    command = [node(), "--no-warnings", str(program), parse_url(address).url]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    last = told.pop("last")
    assert told.pop("status") == ["answered", 3], "twice it was away"
    assert told.pop("settle") == ["store-away", 1], "it might be done twice"
    assert (told.pop("hasty"), told.pop("repeated")) == ("store-away", True)
    assert told == {f"p{n}": [1, 2, 3] for n in range(4)} | {"other": "no-right"}
    assert last in ("done", "Closed")
