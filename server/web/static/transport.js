/** How packets are carried: over WebSocket, unless a program passes another function like this one. */

import { UsageError } from "./errors.js";

/**
 * Opens a WebSocket: calls `opened()`, then `message(bytes)` with each packet, then `closed(reason)` once.
 *
 * Another transport is a function like this one; it returns `{send(bytes), close()}`.
 */
export function webSocket(url, { opened, message, closed }) {
  checkWebSocket();
  const socket = new WebSocket(addressOf(url), ["dataspace.1.msgpack"]);
  socket.binaryType = "arraybuffer";
  socket.onopen = opened;
  // `ws` in Node ends a program that ignores an error, and Node 20 has no close event after a refused connection
  socket.onerror = ({ message: text }) => setTimeout(() => closed(text || "the WebSocket has failed"));
  socket.onmessage = ({ data }) => message(new Uint8Array(data));
  socket.onclose = ({ code, reason }) => closed(reason || `the WebSocket was closed with code ${code}`);
  return {
    send: (bytes) => socket.send(bytes),
    close: () => socket.close(),
  };
}

/** Throws `UsageError` in a runtime without WebSocket, as Node 20 is by default. */
export function checkWebSocket() {
  if (typeof globalThis.WebSocket === "function") return;
  throw new UsageError(
    "there is no WebSocket here: use Node 22 or later, start Node 20 with --experimental-websocket, or set " +
      "globalThis.WebSocket to that of the package `ws`",
  );
}

/** Returns the address of the WebSocket: `http` means `ws`, a path may be relative to the page, and `/ws` is usual. */
function addressOf(url) {
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace(/^http/, "ws");
  if (address.pathname === "/") address.pathname = "/ws";
  address.hash = "";
  return address.href;
}
