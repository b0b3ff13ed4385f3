"""The JavaScript client reads epochs in parts: none is missing, and one that was cut off begins anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
import trio

import dataspace
from dataspace import Record
from server.config.model import Config
from server.daemon.serve import serve
from tests.conformance.driving import MODULE, node

pytestmark = pytest.mark.slow

FACTS: Final = 4000

PROGRAM: Final = """
import { connect, record, webSocket } from MODULE;

let cut = CUT; // the connection is cut once so many messages have come
const transport = (url, { opened, message, closed }) => {
  const link = webSocket(url, {
    opened,
    closed,
    message: (packet) => {
      if (cut-- !== 0) return message(packet);
      closed("cut");
      link.close();
      return undefined;
    },
  });
  return link;
};

const space = await connect("ws://127.0.0.1:PORT/ws", { transport });
const seen = space.observe("n($i, $said)", { parts: true });
let rows = new Set();
let [begun, parts] = [0, 0];
for await (const part of seen) {
  parts++;
  if (part.begins) {
    begun++;
    rows = new Set();
  }
  for (const [i] of part.added) rows.add(i);
  if (!part.state) throw new Error("the state is in parts as well");
  if (!part.more) break;
}
console.log(JSON.stringify({ begun, rows: rows.size, several: parts > 3 }));
const again = space.observe("n($i, _)", { parts: true, snapshot: false });
await space.turn((draft) => draft.assert(record("n", -1, "")));
const { begins, more, added } = await again.read();
console.log(JSON.stringify({ begins, more, added }));
await space.close();
"""


@pytest.mark.parametrize(("cut", "begun"), [(-1, 1), (4, 2)], ids=["whole", "cut off"])
async def test_a_state_comes_in_parts(tmp_path: Path, nursery: trio.Nursery, cut: int, begun: int) -> None:
    config = Config(("tcp:127.0.0.1:0", "http:127.0.0.1:0"), tmp_path / "data")
    tcp, web = [address.rpartition(":")[2] for address in await nursery.start(serve, config)]
    async with dataspace.connect(f"tcp://127.0.0.1:{tcp}") as space:
        async with space.turn() as turn:
            for i in range(FACTS):
                turn.assert_(Record("n", i, f"{i} {'long ' * 20}"))
        file = tmp_path / "parts.mjs"
        said = PROGRAM.replace("MODULE", json.dumps(MODULE.as_uri())).replace("PORT", web)
        file.write_text(said.replace("CUT", str(cut)))
        with trio.fail_after(30):
            command = [node(), "--no-warnings", "--experimental-websocket", str(file)]
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.stderr == b""
    state, change = [json.loads(line) for line in done.stdout.splitlines()]
    assert state == {"begun": begun, "rows": FACTS, "several": True}
    assert change == {"begins": True, "more": False, "added": [[-1]]}
