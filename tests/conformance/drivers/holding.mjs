// Holds the values and patterns of the kit against the JavaScript client, wherever that runs.

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const bytesOf = (digits) => Uint8Array.from(digits.match(/../g) ?? [], (two) => parseInt(two, 16));

/** Returns how much was held against the client, module `d`, and what differs; `kept` has the files of the kit. */
export function held(d, kept) {
  const wrong = [];
  let count = 0;
  function hold(fits, ...what) {
    count++;
    if (!fits) wrong.push(what.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(" "));
  }
  function attempt(fn, ...what) {
    try {
      return fn();
    } catch (error) {
      hold(false, ...what, error.stack);
      return undefined;
    }
  }

  const { values, also, refused, said, unsaid } = kept.values;
  const read = values.map((each) =>
    attempt(() => {
      const value = d.fromJson(each.json);
      hold(hex(d.pack(value)) === each.bytes, "packed", each, hex(d.pack(value)));
      const unpacked = d.unpack(bytesOf(each.bytes));
      hold(d.equal(unpacked, value) && hex(d.pack(unpacked)) === each.bytes, "unpacked", each);
      hold(d.equal(d.parse(each.text), value), "parsed", each);
      hold(d.text(value) === each.text, "as text", d.text(value), each);
      hold(d.equal(d.fromJson(JSON.parse(JSON.stringify(d.toJson(value)))), value), "as JSON", d.toJson(value), each);
      return value;
    }, each),
  );
  read.forEach((one, at) => {
    const key = d.key(one);
    read.forEach((other, place) => {
      hold(Math.sign(d.compare(one, other)) === Math.sign(at - place), "order", values[at].text, values[place].text);
      hold((key === d.key(other)) === (at === place), "keys", values[at].text, values[place].text);
    });
  });
  for (const each of also) {
    attempt(() => {
      const value = each.bytes === undefined ? d.parse(each.text) : d.unpack(bytesOf(each.bytes));
      hold(d.equal(value, d.fromJson(each.json)), "also", each, d.text(value));
    }, each);
  }
  for (const each of refused) {
    try {
      const value = each.bytes === undefined ? d.parse(each.text) : d.unpack(bytesOf(each.bytes));
      hold(false, "not refused", each, d.text(value));
    } catch (error) {
      hold(error instanceof d.DataspaceError, "refused otherwise", each, error.stack);
    }
  }
  for (const each of said) {
    attempt(() => hold(d.text(d.fromJson(each.json)) === each.text, "said", each, d.text(d.fromJson(each.json))), each);
  }
  for (const each of unsaid) {
    try {
      hold(false, "not refused", each, d.text(d.fromJson(each.json)));
    } catch (error) {
      hold(error instanceof d.UsageError, "refused otherwise", each, error.stack);
    }
  }
  for (const each of kept.patterns.patterns) {
    attempt(() => {
      const pattern = d.parse(each.text);
      hold(hex(d.pack(pattern)) === each.bytes, "pattern", each);
      hold(JSON.stringify(d.captureNames(pattern)) === JSON.stringify(each.names), "names", each);
      for (const { json, captures } of each.against) {
        const row = d.matcher(pattern)(d.fromJson(json));
        const wanted = captures === null ? null : captures.map(d.fromJson);
        hold(row === null ? wanted === null : wanted !== null && d.equal(row, wanted), "matches", each.text, json, captures);
      }
    }, each);
  }

  return { held: count, wrong };
}
