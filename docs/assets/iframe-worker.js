/* Search in a site that is opened as a folder.
 *
 * Browsers start no worker from a file: address, and the theme's search runs in a worker. Here a worker is a script in
 * a hidden frame: messages pass between the two windows as events. The theme looks for the name IFrameWorker.
 */
"use strict";

class IFrameWorker extends EventTarget {
  #frame = document.createElement("iframe");
  #ready;

  constructor(url) {
    super();
    this.#frame.hidden = true;
    document.body.append(this.#frame);
    const inside = this.#frame.contentWindow;
    this.#ready = new Promise((resolve) => {
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href);
      script.onload = resolve;
      script.onerror = () => this.dispatchEvent(new Event("error"));
      inside.document.body.append(script);
    });
  }

  async postMessage(data) {
    await this.#ready;
    const inside = this.#frame.contentWindow;
    inside.dispatchEvent(new inside.MessageEvent("message", { data }));
  }

  terminate() {
    this.#frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = IFrameWorker;
}
