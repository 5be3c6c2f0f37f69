// SPDX-License-Identifier: Apache-2.0
// The frame of a sandbox's pages: its name, state and actions, and the tabs.

import { get, routeOf, send } from "./api.js";
import { checkpointsTab } from "./checkpoints.js";
import { act, confirm, errorPlace, openDialog } from "./dialog.js";
import { button, field, h, pathOf } from "./dom.js";
import { eventsTab, networkTab } from "./events.js";
import { filesTab } from "./files.js";
import { stateBadge } from "./list.js";
import { metricsTab } from "./metrics.js";
import { overviewTab } from "./overview.js";
import { poll } from "./poll.js";
import { processesTab } from "./processes.js";
import { terminalTab } from "./terminal.js";

const INTERVAL_MS = 5000;
const TABS = [["overview", "Overview", overviewTab], ["terminal", "Terminal", terminalTab], ["files", "Files", filesTab],
  ["processes", "Processes", processesTab], ["metrics", "Metrics", metricsTab], ["events", "Events", eventsTab],
  ["network", "Network", networkTab], ["checkpoints", "Checkpoints", checkpointsTab]];

function timeoutDialog(id) {
  const seconds = h("input", { type: "number", min: 0, required: true, value: 3600 });
  return openDialog({
    title: "Set the time to live",
    content: field("Seconds from now", seconds, "It may be shorter than what is left."),
    action: "Set",
    submit: () => send("POST", routeOf(id, "timeout"), { timeout: Number(seconds.value) }).then(() => true),
  });
}

export function sandboxPage(content, address) {
  const [, id, tab] = address.parts;
  const [name, , show] = TABS.find(([one]) => one === tab) || TABS[0];
  const listeners = new Set(), problem = errorPlace(() => polling.now()), abort = new AbortController();
  const badge = h("span", { role: "status" }), actions = h("div", { class: "actions" }), place = h("div", { class: "tab" });
  let detail = null, leave = null, state = "";

  // What the tabs use: the sandbox as last seen, and a call for each change of it.
  const sandbox = {
    id,
    signal: abort.signal,
    get detail() {
      return detail;
    },
    onChange(listener) {
      listeners.add(listener);
      if (detail)
        listener(detail);
      return () => listeners.delete(listener);
    },
    reload: () => polling.now(),
  };

  function change(text, work, done) {
    return button(text, (event) => act(event.target, async () => {
      if (await work())
        polling.now();
    }, done));
  }

  function showActions() {
    if (state === detail.state)
      return;
    state = detail.state;
    badge.replaceChildren(stateBadge(state));
    actions.replaceChildren(
      state === "paused"
        ? change("Resume", () => send("POST", routeOf(id, "connect"), { timeout: 3600 }).then(() => true))
        : change("Pause", () => send("POST", routeOf(id, "pause"), {}).then(() => true)),
      ...(state === "paused" ? [] : [button("Set time to live", async () => { // not off meanwhile: the dialog gives the focus back
        if (await timeoutDialog(id))
          polling.now();
      })]),
      button("Kill", async () => {
        if (await confirm(`Kill ${id}?`, "Its processes end and its files are removed.", "Kill",
          () => send("DELETE", routeOf(id)).then(() => true)))
          location.hash = "#/sandboxes";
      }, { class: "danger" }));
  }

  async function load() {
    detail = await get(routeOf(id), { signal: abort.signal });
    showActions();
    if (!leave)
      leave = show(place, sandbox, address) || (() => {});
    for (const listener of listeners)
      listener(detail);
  }

  function onError(error) {
    problem.show(error);
    if (error && error.status === 404) {
      badge.replaceChildren(stateBadge("ended"));
      actions.replaceChildren();
      if (!leave && (name === "events" || name === "network" || name === "metrics")) // the server keeps these
        leave = show(place, sandbox, address);
    }
  }

  content.append(
    h("p", { class: "crumbs" }, h("a", { href: "#/sandboxes" }, "Sandboxes")),
    h("div", { class: "title" }, h("h1", { class: "mono" }, id), badge, actions),
    h("nav", { class: "tabs", "aria-label": "Sandbox" }, TABS.map(([one, text]) => (
      h("a", { href: pathOf("sandboxes", id, one), "aria-current": one === name ? "page" : null }, text)))),
    problem.element, place);
  content.querySelector(".tabs [aria-current]").scrollIntoView({ block: "nearest", inline: "center" });
  const polling = poll(load, INTERVAL_MS, onError);
  return () => {
    polling.stop();
    abort.abort();
    leave?.();
  };
}
