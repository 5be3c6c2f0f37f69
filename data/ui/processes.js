// SPDX-License-Identifier: Apache-2.0
// The processes that clients have started in a sandbox: their output, and signals.

import { act, confirm, errorPlace } from "./dialog.js";
import { button, field, h, setText, table } from "./dom.js";
import { call, fromBase64, stream } from "./envd.js";
import { plain, visible } from "./format.js";
import { poll } from "./poll.js";

const INTERVAL_MS = 3000, OUTPUT_MAX = 256 << 10;

function commandOf(one) {
  const config = one.config || {}, args = config.args || [];
  // How SDKs start commands: the shell is no news.
  if (/\/(ba)?sh$/.test(config.cmd || "") && args.length >= 2 && /c$/.test(args.at(-2)))
    return args.at(-1);
  return [config.cmd, ...args].join(" ");
}

// A part of the page that shows one process's output.
class Output {
  constructor(id, title) {
    this.id = id;
    this.abort = new AbortController();
    this.status = h("span", { role: "status" });
    this.text = h("pre", { class: "output", tabindex: "0", "aria-label": `Output of ${title}` });
    this.decoders = { stdout: new TextDecoder(), stderr: new TextDecoder(), pty: new TextDecoder() };
    this.length = 0;
    this.element = h("section", { class: "card" }, h("div", { class: "bar" }, h("h2", { class: "mono" }, title), this.status,
      button("Close", () => this.close(), { class: "small" })), this.text);
  }

  add(name, data) {
    const text = plain(this.decoders[name].decode(fromBase64(data), { stream: true }));
    if (!text)
      return;
    const isAtEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 8;
    this.text.append(h("span", { class: name === "stderr" ? "stderr" : null }, text));
    this.length += text.length;
    while (this.length > OUTPUT_MAX && this.text.childNodes.length > 1) {
      this.length -= this.text.firstChild.textContent.length;
      this.text.firstChild.remove();
    }
    if (isAtEnd)
      this.text.scrollTop = this.text.scrollHeight;
  }

  onEvent({ event }) {
    for (const name of Object.keys(this.decoders))
      if (event?.data?.[name])
        this.add(name, event.data[name]);
    if (event?.start)
      setText(this.status, `Running, PID ${event.start.pid}.`);
    if (event?.end)
      setText(this.status, event.end.status || "exit status 0");
  }

  async follow(method, message) {
    setText(this.status, "Connecting…");
    try {
      await stream(this.id, `process.Process/${method}`, message, (one) => this.onEvent(one), this.abort.signal);
    } catch (error) {
      if (error.name !== "AbortError")
        setText(this.status, `${error.message} ${error.next || ""}`);
    }
  }

  close() {
    this.abort.abort();
    this.element.remove();
  }
}

export function processesTab(place, sandbox) {
  const { id } = sandbox, problem = errorPlace(() => polling.now()), list = h("div");
  const outputs = h("div"), rows = new Map();
  const command = h("input", { required: true, spellcheck: "false", autocomplete: "off", class: "mono" });
  let output = null;

  // A stream each takes one of the few connections that a browser has to a server.
  function show(title, method, message) {
    output?.close();
    output = new Output(id, title);
    outputs.replaceChildren(output.element);
    return output.follow(method, message).finally(() => polling.now());
  }

  async function signal(event, one, name) {
    const isKill = name === "SIGNAL_SIGKILL", word = isKill ? "SIGKILL" : "SIGTERM";
    if (isKill && !await confirm(`Kill process ${one.pid}?`, visible(commandOf(one)), "Kill"))
      return;
    await act(event.target, () => call(id, "process.Process/SendSignal", { process: { pid: one.pid }, signal: name }), `${word} was sent to process ${one.pid}.`);
    polling.now();
  }

  function row(one) {
    const text = visible(commandOf(one));
    return h("tr", null, h("th", { scope: "row", class: "number" }, String(one.pid)), h("td", { class: "mono long" }, text), h("td", null, visible(one.tag || "")),
      h("td", { class: "mono" }, visible(one.config?.cwd || "")), h("td", { class: "buttons" },
        button("Output", () => show(text, "Connect", { process: { pid: one.pid } }), { class: "small", "aria-label": `Output of process ${one.pid}` }),
        button("Terminate", (event) => signal(event, one, "SIGNAL_SIGTERM"), { class: "small", "aria-label": `Terminate process ${one.pid}` }),
        button("Kill", (event) => signal(event, one, "SIGNAL_SIGKILL"), { class: "small", "aria-label": `Kill process ${one.pid}` })));
  }

  const box = table("Processes", [{ text: "PID", class: "number" }, "Command", "Tag", "Folder", "Actions"], []);
  const none = h("p", { class: "empty" }, "No client has a process here. Start one above, with a terminal, or with an SDK.");
  const body = box.querySelector("tbody");

  async function load() {
    const all = (await call(id, "process.Process/List", {}, sandbox.signal)).processes || [];
    const keys = new Set(all.map((one) => `${one.pid} ${JSON.stringify(one.config)}`));
    for (const [key, element] of rows)
      if (!keys.has(key)) {
        element.remove();
        rows.delete(key);
      }
    for (const one of all) {
      const key = `${one.pid} ${JSON.stringify(one.config)}`;
      if (!rows.has(key)) {
        rows.set(key, row(one));
        body.append(rows.get(key));
      }
    }
    const shown = all.length ? box : none;
    if (list.firstChild !== shown)
      list.replaceChildren(shown);
  }

  place.append(h("form", {
    class: "bar run",
    onsubmit: (event) => {
      event.preventDefault();
      show(command.value, "Start", { process: { cmd: "/bin/bash", args: ["-l", "-c", command.value] }, stdin: false });
      setTimeout(() => polling.now(), 300);
      command.value = "";
    },
  }, field("Command", command), h("button", { type: "submit", class: "main" }, "Run")), problem.element, list, outputs);
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => {
    polling.stop();
    output?.close();
  };
}
