// SPDX-License-Identifier: Apache-2.0
// The list of sandboxes, with filters.  The server filters by state, template and metadata;
// the page filters by text, and shows PAGE rows at a time.

import { get, query, request, routeOf, send } from "./api.js";
import { act, confirm, errorPlace } from "./dialog.js";
import { button, field, h, pathOf, setText, table } from "./dom.js";
import { bytes, percent, relative, time, visible } from "./format.js";
import { poll } from "./poll.js";

const PAGE = 50, SERVER_PAGE = 100, MOST = 5000, INTERVAL_MS = 5000, TYPING_MS = 250;

// The server decodes metadata's names and values once more than the rest of the query.
function metadataQuery(text) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  return words.map((word) => {
    const [name, value] = word.split(/=(.*)/s);
    return `${encodeURIComponent(encodeURIComponent(name))}=${encodeURIComponent(encodeURIComponent(value || ""))}`;
  }).join("&");
}

async function loadAll(filters, signal) {
  const found = [];
  let nextToken = "";
  do {
    const reply = await request("GET", `/v2/sandboxes${query({
      limit: SERVER_PAGE, state: filters.state, template: filters.template, metadata: metadataQuery(filters.metadata), nextToken,
    })}`, { signal });
    found.push(...await reply.json());
    nextToken = reply.headers.get("X-Next-Token") || "";
  } while (nextToken && found.length < MOST);
  return { found, isCut: Boolean(nextToken) };
}

function metadataText(one) {
  return Object.entries(one.metadata || {}).map(([name, value]) => `${name}=${value}`).join(" ");
}

function matches(one, text) {
  const all = `${one.sandboxID} ${one.templateID} ${one.alias || ""} ${one.state} ${metadataText(one)}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

export function stateBadge(state) {
  return h("span", { class: `state ${state === "running" || state === "paused" ? state : ""}` }, state);
}

// A row keeps its elements from one poll to the next, so that focus and selection stay.
class Row {
  constructor(one, onKill) {
    this.state = h("td");
    this.template = h("td");
    this.started = h("td");
    this.ends = h("td");
    this.cpu = h("td", { class: "number" });
    this.memory = h("td", { class: "number" });
    this.metadata = h("td", { class: "long" });
    this.element = h("tr", null,
      h("th", { scope: "row" }, h("a", { class: "mono", href: pathOf("sandboxes", one.sandboxID) }, one.sandboxID)),
      this.state, this.template, this.started, this.ends, this.cpu, this.memory, this.metadata,
      h("td", null, button("Kill", onKill, { class: "small", "aria-label": `Kill ${one.sandboxID}` })));
  }

  update(one, metric) {
    if (this.state.textContent !== one.state)
      this.state.replaceChildren(stateBadge(one.state));
    setText(this.template, visible(one.templateID));
    setText(this.started, relative(one.startedAt));
    this.started.title = time(one.startedAt);
    setText(this.ends, one.endAt ? relative(one.endAt) : "");
    this.ends.title = time(one.endAt);
    setText(this.cpu, metric ? percent(metric.cpuUsedPct) : "–");
    setText(this.memory, metric ? bytes(metric.memUsed) : "–");
    setText(this.metadata, visible(metadataText(one)));
  }
}

export function listPage(content, address) {
  const filters = { state: "", template: "", metadata: "", text: "" };
  for (const name of Object.keys(filters))
    filters[name] = address.query.get(name) || "";
  let page = 0, all = [], isCut = false, isLoaded = false, timer = 0;
  const rows = new Map(), abort = new AbortController(), problem = errorPlace(() => polling.now());
  const count = h("p", { class: "count", role: "status" }, "Loading…");
  const box = table("Sandboxes", ["ID", "State", "Template", "Started", "Ends", { text: "CPU", class: "number" },
    { text: "Memory", class: "number" }, "Metadata", "Action"], [], { class: "list" });
  const body = box.querySelector("tbody");
  const empty = h("div", { class: "empty", hidden: true });
  const before = button("Previous", () => turn(-1)), after = button("Next", () => turn(1));
  const where = h("span");
  const pager = h("nav", { class: "pager", "aria-label": "Pages of the list", hidden: true }, before, where, after);

  function input(name, attributes) {
    return h("input", { type: "search", value: filters[name], spellcheck: "false", autocomplete: "off", oninput: (event) => filter(name, event.target.value, name !== "text"), ...attributes });
  }
  const state = h("select", { onchange: (event) => filter("state", event.target.value, true) },
    h("option", { value: "" }, "all"), h("option", { value: "running" }, "running"), h("option", { value: "paused" }, "paused"));
  state.value = filters.state;

  function turn(by) {
    page += by;
    render();
    loadMetrics().catch(() => {});
    box.focus();
  }

  function filter(name, value, byServer) {
    filters[name] = value.trim();
    page = 0;
    history.replaceState(null, "", `#/sandboxes${query(filters)}`);
    clearTimeout(timer);
    if (byServer)
      timer = setTimeout(() => polling.now(), TYPING_MS);
    else
      render();
  }

  function kill(one) {
    return async (event) => {
      const id = one.sandboxID;
      if (await confirm(`Kill ${id}?`, "Its processes end and its files are removed.", "Kill"))
        if (await act(event.target, () => send("DELETE", routeOf(id)).then(() => true), `${id} was killed.`))
          polling.now();
    };
  }

  function slice() {
    const found = filters.text ? all.filter((one) => matches(one, filters.text)) : all;
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.max(0, Math.min(page, pages - 1));
    return { found, pages, shown: found.slice(page * PAGE, (page + 1) * PAGE) };
  }

  let metrics = {};

  function render() {
    const { found, pages, shown } = slice();
    const ids = new Set(shown.map((one) => one.sandboxID));
    for (const [id, row] of rows)
      if (!ids.has(id)) {
        row.element.remove();
        rows.delete(id);
      }
    shown.forEach((one, at) => {
      let row = rows.get(one.sandboxID);
      if (!row)
        rows.set(one.sandboxID, row = new Row(one, kill(one)));
      row.update(one, metrics[one.sandboxID]);
      if (body.children[at] !== row.element)
        body.insertBefore(row.element, body.children[at] || null);
    });
    const isFiltered = Object.values(filters).some(Boolean);
    setText(count, !isLoaded ? "Loading…" : `${found.length}${isCut ? " or more" : ""} ${found.length === 1 ? "sandbox" : "sandboxes"}${isFiltered ? " with these filters" : ""}`);
    box.hidden = isLoaded && found.length === 0;
    empty.hidden = !box.hidden;
    setText(empty, isFiltered ? "No sandbox matches these filters." : "There are no sandboxes yet. Create one here, or with an E2B SDK.");
    pager.hidden = pages < 2;
    before.disabled = page === 0;
    after.disabled = page === pages - 1;
    setText(where, `Page ${page + 1} of ${pages}`);
  }

  async function loadMetrics() {
    const ids = slice().shown.filter((one) => one.state === "running").map((one) => one.sandboxID);
    if (ids.length === 0)
      return;
    metrics = (await get(`/sandboxes/metrics${query({ sandbox_ids: ids.join(",") })}`, { signal: abort.signal })).sandboxes || {};
    render();
  }

  async function load() {
    const used = { ...filters };
    const reply = await loadAll(used, abort.signal);
    if (["state", "template", "metadata"].some((name) => used[name] !== filters[name]))
      return; // the filters have changed meanwhile: another load follows
    ({ found: all, isCut } = reply);
    isLoaded = true;
    render();
    await loadMetrics();
  }

  content.append(
    h("div", { class: "title" }, h("h1", null, "Sandboxes"), h("a", { class: "button main", href: "#/create" }, "Create a sandbox")),
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      field("Text", input("text", { placeholder: "ID, template, metadata" })), field("State", state),
      field("Template", input("template")), field("Metadata", input("metadata", { placeholder: "name=value" }))),
    problem.element, count, box, empty, pager);
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => {
    clearTimeout(timer);
    polling.stop();
    abort.abort();
  };
}
