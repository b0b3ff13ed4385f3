// Drives the JavaScript client for the conformance kit: a command on each line of stdin, an event on each of stdout.
// `node javascript.mjs MODULE`, or `deno run -A`, or `bun`; README.md of the kit has the commands and events.
import { createInterface } from "node:readline";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { tcp } from "./tcp.mjs";
import { driver } from "./verbs.mjs";

const client = await import(pathToFileURL(process.argv[2]));
const tell = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const carryOut = driver(client, tell, { "tcp:": tcp });

for await (const line of createInterface({ input: process.stdin })) carryOut(JSON.parse(line));
