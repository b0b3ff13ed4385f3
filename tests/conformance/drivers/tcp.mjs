// A transport over TCP, with the frames of WIRE.md: for tests in Node alone, where a daemon needs no HTTP listener.
import { connect } from "node:net";

/** Opens `tcp://HOST:PORT`; what it is called with and returns is as for `webSocket` of dataspace.js. */
export function tcp(url, { opened, message, closed }) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let held = Buffer.alloc(0);
  let reason = "the daemon closed it";
  socket.setNoDelay(true);
  socket.on("connect", opened);
  socket.on("error", (error) => (reason = error.message));
  socket.on("close", () => closed(reason));
  socket.on("data", (chunk) => {
    held = held.length ? Buffer.concat([held, chunk]) : chunk;
    while (held.length >= 4 && held.length >= 4 + held.readUInt32BE(0)) {
      const size = held.readUInt32BE(0);
      const body = held.subarray(4, 4 + size);
      held = held.subarray(4 + size);
      message(new Uint8Array(body.buffer, body.byteOffset, size));
    }
  });
  return {
    send(bytes) {
      const head = Buffer.alloc(4);
      head.writeUInt32BE(bytes.length);
      socket.write(Buffer.concat([head, bytes]));
    },
    close: () => socket.end(),
  };
}
