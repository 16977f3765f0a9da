// Pages that are opened from a disk may start no worker. The search's worker then runs in a hidden frame of the
// page, behind the part of a worker's interface that the theme uses; it looks for `IFrameWorker` to find out.
"use strict";
(() => {
  class FrameWorker extends EventTarget {
    onmessage = null;

    constructor(script) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.receive = (event) => {
        if (event.source !== inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      addEventListener("message", this.receive);
      const end = "</" + "script>";
      inside.document.open();
      inside.document.write(`<!doctype html><body><script>
        self.postMessage = (data) => parent.postMessage(data, "*");
        self.importScripts = (...files) => files.reduce((before, file) => before.then(() => new Promise((loaded, failed) => {
          const part = document.createElement("script");
          Object.assign(part, { src: file, onload: loaded, onerror: failed });
          document.body.append(part);
        })), Promise.resolve());
      ${end}<script src="${script}">${end}</body>`);
      inside.document.close();
      this.ready = new Promise((loaded) => inside.addEventListener("load", loaded));
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }

    terminate() {
      removeEventListener("message", this.receive);
      this.frame.remove();
    }
  }

  if (location.protocol === "file:") window.Worker = window.IFrameWorker = FrameWorker;
})();
