/** How packets are carried: over WebSocket, unless a program passes another function like this one. */

/**
 * Opens a WebSocket: calls `opened()`, then `message(bytes)` with each packet, then `closed(reason)` once.
 *
 * Another transport is a function like this one; it returns `{send(bytes), close()}`.
 */
export function webSocket(url, { opened, message, closed }) {
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

/** Returns the address of the WebSocket: `http` means `ws`, a path may be relative to the page, and `/ws` is usual. */
function addressOf(url) {
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace(/^http/, "ws");
  if (address.pathname === "/") address.pathname = "/ws";
  address.hash = "";
  return address.href;
}
