// Holds the vectors of the kit against the JavaScript client: `node vectors.mjs MODULE FOLDER`; prints what differs.
import { readFileSync } from "node:fs";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { held } from "./holding.mjs";

const [, , module, folder] = process.argv;
const client = await import(pathToFileURL(module));
const kept = (name) => JSON.parse(readFileSync(`${folder}/${name}.json`, "utf8"));
console.log(JSON.stringify(held(client, { values: kept("values"), patterns: kept("patterns") })));
