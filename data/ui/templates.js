// SPDX-License-Identifier: Apache-2.0
// Templates of the tenant, and one of them with its builds.

import { get, send } from "./api.js";
import { confirm, errorBox, errorPlace } from "./dialog.js";
import { button, h, pathOf, table } from "./dom.js";
import { bytes, relative, time, visible } from "./format.js";
import { poll } from "./poll.js";

const INTERVAL_MS = 10000;

function nameOf(one) {
  return (one.names || one.aliases || [])[0] || one.templateID;
}

function createLink(name) {
  return h("a", { class: "button small", href: `#/create?${new URLSearchParams({ template: name })}`, "aria-label": `Create a sandbox from ${visible(name)}` }, "Create a sandbox");
}

export function templatesPage(content) {
  const place = h("div", null, h("p", null, "Loading…")), problem = errorPlace(() => polling.now()), abort = new AbortController();
  let shown = "";

  async function load() {
    const all = await get("/templates", { signal: abort.signal });
    const text = JSON.stringify(all);
    if (text === shown)
      return;
    shown = text;
    const rows = all.map((one) => h("tr", null,
      h("th", { scope: "row" }, h("a", { href: pathOf("templates", one.templateID) }, visible(nameOf(one)))),
      h("td", { class: "mono" }, one.templateID), h("td", null, h("span", { class: `state ${one.buildStatus === "ready" ? "running" : ""}` }, one.buildStatus)),
      h("td", { class: "number" }, String(one.spawnCount ?? 0)), h("td", { class: "number" }, String(one.buildCount ?? 0)),
      h("td", { title: time(one.updatedAt) }, relative(one.updatedAt)), h("td", null, createLink(nameOf(one)))));
    rows.unshift(h("tr", null, h("th", { scope: "row" }, "base"), h("td"), h("td", null, h("span", { class: "state running" }, "ready")),
      h("td"), h("td"), h("td"), h("td", null, createLink("base"))));
    place.replaceChildren(table("Templates", ["Name", "ID", "Build", { text: "Sandboxes", class: "number" }, { text: "Builds", class: "number" }, "Changed", "Action"], rows));
  }

  content.append(h("h1", null, "Templates"), h("p", { class: "hint" }, "base is the server's own, and E2B SDKs build the others here. A sandbox can also be created from a template of the machine: cay template ls."), problem.element, place);
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => {
    polling.stop();
    abort.abort();
  };
}

export function templatePage(content, address) {
  const id = address.parts[1], place = h("div", null, h("p", null, "Loading…"));
  const heading = h("h1", null, visible(id)), actions = h("div", { class: "actions" }), abort = new AbortController();
  content.append(h("p", { class: "crumbs" }, h("a", { href: "#/templates" }, "Templates")), h("div", { class: "title" }, heading, actions), place);

  async function load() {
    try {
      const one = await get(`/templates/${encodeURIComponent(id)}`, { signal: abort.signal });
      const name = nameOf(one), made = new Map([["ID", one.templateID], ["Created", time(one.createdAt)], ["Changed", time(one.updatedAt)],
        ["Last used", one.lastSpawnedAt ? relative(one.lastSpawnedAt) : "never"], ["Sandboxes so far", String(one.spawnCount ?? 0)]]);
      heading.textContent = visible(name);
      actions.replaceChildren(createLink(name), button("Delete", async () => {
        if (await confirm(`Delete the template ${visible(name)}?`, "Its builds and tags are removed, too.", "Delete", () => send("DELETE", `/templates/${encodeURIComponent(id)}`).then(() => true)))
          location.hash = "#/templates";
      }, { class: "danger" }));
      place.replaceChildren(h("section", { class: "card" }, h("dl", null, [...made].flatMap(([key, value]) => [h("dt", null, key), h("dd", null, value)]))),
        h("h2", null, "Builds"), table("Builds", ["Build", "State", "Created", { text: "CPUs", class: "number" }, { text: "Memory", class: "number" }], (one.builds || []).map((build) => (
          h("tr", null, h("th", { scope: "row", class: "mono" }, build.buildID), h("td", null, h("span", { class: `state ${build.status === "ready" ? "running" : ""}` }, build.status)),
            h("td", null, time(build.createdAt)), h("td", { class: "number" }, String(build.cpuCount || "")), h("td", { class: "number" }, build.memoryMB ? bytes(build.memoryMB * 2 ** 20) : ""))))));
    } catch (error) {
      if (error.name !== "AbortError")
        place.replaceChildren(errorBox(error, load));
    }
  }

  load();
  return () => abort.abort();
}
