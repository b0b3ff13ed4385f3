/** A worker under Node, beside the files of the client, for the tasks of work_queue.py: node worker_node.mjs ws://127.0.0.1:7378/ws Ann 2 */

import { setTimeout } from "node:timers/promises";
import { connect, DeliveryLost, record } from "./dataspace.js";

const [url, me, seconds] = process.argv.slice(2);
const space = await connect(url, { name: me, heartbeat: 1000 });
for await (const job of space.consume("task($id, $a, $b)", { group: "workers", start: "held", ackWithin: 5000 })) {
  const { id, a, b } = job.named;
  console.log("doing", id);
  await setTimeout(1000 * seconds); // the work, in which the process may be killed or stopped
  try {
    await space.turn((turn) => turn.assert(record("done", id, a * b, me), { owner: "results" }), { done: [job] });
  } catch (error) {
    if (!(error instanceof DeliveryLost)) throw error; // another worker has it
    console.log("not mine", id);
  }
}
