// SPDX-License-Identifier: Apache-2.0
// What clients and the server did with a sandbox, and what it tried to reach.

import { get, query, routeOf } from "./api.js";
import { act, errorPlace } from "./dialog.js";
import { button, field, h, setText, table } from "./dom.js";
import { time, visible } from "./format.js";
import { poll } from "./poll.js";

const LIMIT = 200, MOST = 5000, INTERVAL_MS = 5000, TYPING_MS = 250;

function keyOf(one) {
  return JSON.stringify([one.timestamp, one.message, one.fields]);
}

// A list of log entries, newest first, that grows at both ends.  `filters` returns what the
// server filters by; `row` makes a row of an entry.
class Log {
  constructor({ place, sandbox, columns, caption, row, filters, none }) {
    Object.assign(this, { sandbox, row, filters, none });
    this.seen = new Map();
    this.box = table(caption, columns, []);
    this.body = this.box.querySelector("tbody");
    this.empty = h("p", { class: "empty" }, "Loading…");
    this.more = button("Load older entries", (event) => act(event.target, () => this.loadOlder()), { hidden: true });
    this.problem = errorPlace(() => this.polling.now());
    place.append(this.problem.element, this.box, this.empty, this.more);
    this.box.hidden = true;
    this.polling = poll(() => this.load(), INTERVAL_MS, this.problem.show);
  }

  async fetch(cursor) {
    const reply = await get(routeOf(this.sandbox.id, "logs", "/v2") + query({ direction: "backward", limit: LIMIT, cursor, ...this.filters() }), { signal: this.sandbox.signal });
    return reply.logs || [];
  }

  // Entries come newest first.  Returns the rows that are new.
  rowsOf(entries) {
    const rows = [];
    for (const one of entries) {
      const key = keyOf(one);
      if (this.seen.has(key))
        continue;
      this.seen.set(key, one);
      const row = this.row(one);
      if (row)
        rows.push(row);
    }
    return rows;
  }

  async load() {
    const used = JSON.stringify(this.filters());
    const entries = await this.fetch();
    if (used !== JSON.stringify(this.filters()))
      return;
    if (this.used !== used) { // the filters have changed
      this.seen.clear();
      this.body.replaceChildren();
      this.used = used;
      this.oldest = entries.at(-1)?.timestamp;
      this.more.hidden = entries.length < LIMIT;
    }
    this.body.prepend(...this.rowsOf(entries));
    while (this.body.childElementCount > MOST)
      this.body.lastElementChild.remove();
    this.show();
  }

  show() {
    const isEmpty = this.body.childElementCount === 0;
    this.box.hidden = isEmpty;
    this.empty.hidden = !isEmpty;
    setText(this.empty, this.none);
  }

  async loadOlder() {
    const entries = await this.fetch(new Date(this.oldest).getTime());
    const rows = this.rowsOf(entries);
    this.body.append(...rows);
    this.oldest = entries.at(-1)?.timestamp || this.oldest;
    this.more.hidden = entries.length < LIMIT || rows.length === 0 || this.body.childElementCount >= MOST;
    this.show();
  }

  stop() {
    this.polling.stop();
  }
}

function details(fields) {
  const all = Object.entries(fields || {}).filter(([, value]) => value !== "");
  return h("details", null, h("summary", null, "Details"), h("dl", { class: "fields" }, all.flatMap(([name, value]) => [h("dt", null, visible(name)), h("dd", { class: "mono" }, visible(String(value)))])));
}

function level(name) {
  return h("span", { class: `level ${["warn", "error", "info", "debug"].includes(name) ? name : ""}` }, name);
}

export function eventsTab(place, sandbox) {
  let timer = 0;
  const search = h("input", {
    type: "search", maxlength: 256, spellcheck: "false", autocomplete: "off",
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => log.polling.now(), TYPING_MS);
    },
  });
  const least = h("select", { onchange: () => log.polling.now() }, [["", "all"], ["info", "info and above"], ["warn", "warnings and errors"], ["error", "errors"]].map(([value, text]) => h("option", { value }, text)));
  place.append(h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, field("Text", search), field("Level", least)));
  const log = new Log({
    place, sandbox, caption: "Events", columns: ["Time", "Level", "Event", "Details"], none: "No events match.",
    filters: () => ({ level: least.value, search: search.value }),
    row: (one) => h("tr", null, h("th", { scope: "row", class: "when" }, time(one.timestamp)), h("td", null, level(one.level)),
      h("td", { class: "long" }, visible(one.message || "")), h("td", null, details(one.fields))),
  });
  return () => {
    clearTimeout(timer);
    log.stop();
  };
}

const KINDS = { "network.lookup": "name", "network.connect": "connection", "network.packet": "packet", "network.request": "request" };

export function networkTab(place, sandbox) {
  const denied = h("select", { onchange: () => log.polling.now() }, h("option", { value: "" }, "all"), h("option", { value: "warn" }, "denied"));
  place.append(h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, field("Show", denied)));
  const log = new Log({
    place, sandbox, caption: "Network attempts", columns: ["Time", "Verdict", "Kind", "To", "Address", "Rule", "Program"], none: "It has not tried to reach anything.",
    filters: () => ({ search: "network.", level: denied.value }),
    row: (one) => {
      const fields = one.fields || {};
      if (!KINDS[fields.action])
        return null;
      return h("tr", null, h("th", { scope: "row", class: "when" }, time(one.timestamp)),
        h("td", null, h("span", { class: `level ${fields.verdict === "deny" ? "warn" : "info"}` }, fields.verdict === "deny" ? "denied" : "allowed")),
        h("td", null, KINDS[fields.action]), ["to", "address", "rule", "program"].map((name) => h("td", { class: "mono" }, visible(String(fields[name] || "")))));
    },
  });
  return () => log.stop();
}
