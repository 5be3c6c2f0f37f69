// SPDX-License-Identifier: Apache-2.0
// A shell of a sandbox in xterm.js.  The shell goes on when the page shows something else or
// is loaded again, and the terminal connects to it again.

import { call, fromBase64, stream, toBase64 } from "./envd.js";
import { errorBox } from "./dialog.js";
import { button, h, setText } from "./dom.js";
import { FitAddon } from "./vendor/addon-fit.js";
import { Terminal } from "./vendor/xterm.js";

const FIRST_WAIT_MS = 500, MOST_WAIT_MS = 15000, TRIES = 8, KEPT = 8, UNSHOWN_MAX = 256 << 10;
const sessions = new Map(); // by sandbox

// The tag of the shell that this tab of the browser has started in a sandbox
const tags = {
  nameOf: (id) => `cay-shell-${id}`,
  get: (id) => sessionStorage.getItem(tags.nameOf(id)) || "",
  set: (id, tag) => (tag ? sessionStorage.setItem(tags.nameOf(id), tag) : sessionStorage.removeItem(tags.nameOf(id))),
};

const THEMES = {
  dark: { background: "#0d1a1f", foreground: "#dbe7e9", cursor: "#f2d49b", cursorAccent: "#0d1a1f", selectionBackground: "#2c5560" },
  light: {
    background: "#ffffff", foreground: "#1b2b30", cursor: "#0b6e75", cursorAccent: "#ffffff", selectionBackground: "#bfe0e2",
    black: "#1b2b30", red: "#b3261e", green: "#1f6b2d", yellow: "#7a5900", blue: "#1a56a8", magenta: "#8a2a8a", cyan: "#0b6e75", white: "#5a6b70",
    brightBlack: "#4c5c61", brightRed: "#b3261e", brightGreen: "#1f6b2d", brightYellow: "#7a5900", brightBlue: "#1a56a8", brightMagenta: "#8a2a8a", brightCyan: "#0b6e75", brightWhite: "#1b2b30",
  },
};

const dark = matchMedia("(prefers-color-scheme: dark)");

class Session {
  constructor(id) {
    this.id = id;
    this.tag = tags.get(id);
    this.isRestored = Boolean(this.tag); // not known to run
    this.runs = false;
    this.unshown = 0; // bytes of output that the terminal has not shown yet
    this.waiting = ""; // typed, and not sent yet
    this.sends = false;
    this.abort = null;
    this.element = h("div", { class: "xterm-place" });
    this.status = h("span", { role: "status" }, "");
    this.retry = button("Start a new shell", () => {
      this.run();
      this.terminal.focus();
    }, { hidden: true });
    this.terminal = new Terminal({
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches, fontSize: 14, scrollback: 5000, screenReaderMode: true,
      minimumContrastRatio: 4.5, theme: THEMES[dark.matches ? "dark" : "light"],
      fontFamily: 'ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", Consolas, monospace',
      linkHandler: { activate: () => {} }, // addresses in output are not to be opened by a click
    });
    this.fit = new FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.onData((text) => this.type(text));
    this.terminal.onResize(() => this.resize());
    this.terminal.attachCustomKeyEventHandler((event) => {
      if (event.key === "Escape" && event.shiftKey) { // Tab is for the shell: this leaves the terminal
        if (event.type === "keydown")
          (this.retry.hidden ? this.leaveTo : this.retry)?.focus();
        return false;
      }
      return true;
    });
  }

  get selector() {
    return { process: { tag: this.tag } };
  }

  size() {
    return { size: { cols: this.terminal.cols, rows: this.terminal.rows } };
  }

  say(text) {
    setText(this.status, text);
  }

  // One request at a time, since their order is that of what was typed.
  async type(text) {
    this.waiting += text;
    if (this.sends || !this.runs)
      return;
    this.sends = true;
    while (this.waiting && this.runs) {
      const bytes = new TextEncoder().encode(this.waiting);
      this.waiting = "";
      try {
        await call(this.id, "process.Process/SendInput", { ...this.selector, input: { pty: toBase64(bytes) } });
      } catch (error) {
        this.say(`Not sent: ${error.message}`);
        this.waiting = "";
      }
    }
    this.sends = false;
  }

  resize() {
    if (this.runs)
      call(this.id, "process.Process/Update", { ...this.selector, pty: this.size() }).catch(() => {}); // it may have ended
  }

  // Resolves when the terminal can take more: the shell then waits, not this page's memory.
  write(bytes) {
    this.unshown += bytes.length;
    return new Promise((resolve) => {
      this.terminal.write(bytes, () => {
        this.unshown -= bytes.length;
        resolve();
      });
      if (this.unshown < UNSHOWN_MAX)
        resolve();
    });
  }

  onEvent({ event }, connection) {
    if (event?.start) {
      this.runs = connection.works = true;
      this.isRestored = false;
      this.say("Connected.");
      this.resize();
    } else if (event?.data?.pty) {
      return this.write(fromBase64(event.data.pty));
    } else if (event?.end) {
      this.ended(` (${event.end.status || "exit status 0"})`);
    }
    return null;
  }

  forget() {
    this.tag = "";
    this.runs = this.isRestored = false;
    tags.set(this.id, "");
  }

  ended(status) {
    this.forget();
    this.say(`The shell has ended${status}.`);
    this.retry.hidden = false;
  }

  // Starts a shell, or connects to the one that runs; tries again if the connection breaks.
  async run() {
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    this.retry.hidden = true;
    let wait = FIRST_WAIT_MS;
    for (let tries = 0; tries < TRIES && !abort.signal.aborted;) {
      const connection = { works: false };
      this.say(this.tag ? "Connecting again…" : "Starting a shell…");
      try {
        await this.connect(connection, abort.signal);
        return; // it has ended
      } catch (error) {
        if (abort.signal.aborted)
          return;
        if (error.status === 404 && this.isRestored) { // that of the page before: start another
          this.forget();
          continue;
        }
        if (error.status === 404 && this.tag) {
          this.ended("");
          return;
        }
        tries = connection.works ? 1 : tries + 1;
        wait = connection.works ? FIRST_WAIT_MS : Math.min(MOST_WAIT_MS, 2 * wait);
        if (error.status && error.status < 500 && error.status !== 429)
          tries = TRIES;
        this.say(tries < TRIES ? `${error.message} Connecting again…` : `${error.message} ${error.next || ""}`);
      }
      if (tries < TRIES)
        await new Promise((resolve) => setTimeout(resolve, wait));
    }
    this.retry.hidden = abort.signal.aborted;
  }

  connect(connection, signal) {
    const onEvent = (message) => this.onEvent(message, connection);
    if (this.tag)
      return stream(this.id, "process.Process/Connect", this.selector, onEvent, signal);
    this.tag = `dashboard-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    tags.set(this.id, this.tag);
    return stream(this.id, "process.Process/Start", {
      process: { cmd: "/bin/bash", args: ["-i", "-l"], envs: { TERM: "xterm-256color", LANG: "C.UTF-8", LC_ALL: "C.UTF-8" } },
      pty: this.size(), tag: this.tag,
    }, onEvent, signal).catch((error) => {
      if (!connection.works && error.status) // refused: there is no shell
        this.forget();
      throw error;
    });
  }

  show(place) {
    place.append(this.element);
    if (!this.terminal.element)
      this.terminal.open(this.element);
    this.fit.fit();
  }

  suspend() {
    this.abort?.abort();
    this.element.remove();
  }

  end() {
    this.suspend();
    this.terminal.dispose();
  }
}

export function endTerminals() {
  for (const session of sessions.values()) {
    session.forget();
    session.end();
  }
  sessions.clear();
}

function sessionOf(id) {
  let session = sessions.get(id);
  if (!session) {
    session = new Session(id);
    if (sessions.size >= KEPT) {
      const [oldest] = sessions.keys();
      sessions.get(oldest).end();
      sessions.delete(oldest);
    }
    sessions.set(id, session);
  }
  return session;
}

export function terminalTab(place, sandbox) {
  if (sandbox.detail.state === "paused") {
    place.append(errorBox({ message: "The sandbox is paused.", next: "Resume it to use a terminal." }));
    let wasPaused = true;
    return sandbox.onChange((detail) => {
      if (detail.state !== "paused" && wasPaused) {
        wasPaused = false;
        dispatchEvent(new Event("hashchange")); // shows the page anew
      }
    });
  }
  const session = sessionOf(sandbox.id);
  const box = h("div", { class: "shell" });
  session.leaveTo = button("Clear", () => session.terminal.clear());
  place.append(h("div", { class: "bar" }, session.status, h("span", { class: "hint" }, "Shift+Escape leaves the terminal."), session.retry, session.leaveTo), box);
  session.show(box);
  session.run();
  session.terminal.focus();
  const observer = new ResizeObserver(() => session.fit.fit());
  observer.observe(box);
  const recolor = () => {
    session.terminal.options.theme = THEMES[dark.matches ? "dark" : "light"];
  };
  dark.addEventListener("change", recolor);
  recolor();
  return () => {
    observer.disconnect();
    dark.removeEventListener("change", recolor);
    session.suspend();
  };
}
