// SPDX-License-Identifier: Apache-2.0
// Tenants, their limits and their keys: for admin keys only.

import { get, send } from "./api.js";
import { errorBox, openDialog } from "./dialog.js";
import { button, field, h, pathOf, table } from "./dom.js";
import { visible } from "./format.js";
import { keyList } from "./keys.js";

function limitInput(value) {
  return h("input", { type: "number", min: 0, required: true, value: value || 0 });
}

function tenantRoute(name) {
  return `/admin/tenants/${encodeURIComponent(name)}`;
}

function tenantKeys(content, name) {
  content.append(h("p", { class: "crumbs" }, h("a", { href: "#/tenants" }, "Tenants")), h("h1", null, visible(name)), h("h2", null, "API keys"));
  keyList(content, `${tenantRoute(name)}/keys`, false);
}

export function tenantsPage(content, address) {
  if (address.parts[1]) {
    tenantKeys(content, address.parts[1]);
    return;
  }
  const list = h("div", null, h("p", null, "Loading…"));

  async function load() {
    try {
      const all = await get("/admin/tenants");
      list.replaceChildren(table("Tenants", ["Name", { text: "Running", class: "number" }, { text: "At most", class: "number" }, { text: "Keys", class: "number" }, "Actions"], all.map(row)));
    } catch (error) {
      if (error.status === 404 || error.status === 501) { // a server without this list has the keys
        create.hidden = true;
        list.replaceChildren(openByName());
      } else {
        list.replaceChildren(errorBox(error, load));
      }
    }
  }

  function openByName() {
    const name = h("input", { required: true, spellcheck: "false", autocomplete: "off" });
    return h("form", {
      class: "card",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = pathOf("tenants", name.value);
      },
    }, field("Tenant", name, "cay key ls lists the tenants of the server."), h("button", { type: "submit", class: "main" }, "Show its keys"));
  }

  function row(one) {
    const name = visible(one.name);
    return h("tr", null, h("th", { scope: "row" }, h("a", { href: pathOf("tenants", one.name) }, name)), h("td", { class: "number" }, String(one.running ?? "")),
      h("td", { class: "number" }, one.maxRunning ? String(one.maxRunning) : "no limit"), h("td", { class: "number" }, String(one.keys ?? "")), h("td", null,
        button("Set limit", async () => {
          const limit = limitInput(one.maxRunning);
          await openDialog({ title: `Limit of ${name}`, content: field("Sandboxes that run at once", limit, "0 is no limit."), action: "Set", submit: () => send("PATCH", tenantRoute(one.name), { maxRunning: Number(limit.value) }) });
          load();
        }, { class: "small", "aria-label": `Set the limit of ${name}` })));
  }

  const create = button("Create a tenant", async () => {
    const name = h("input", { required: true, spellcheck: "false", autocomplete: "off" }), limit = limitInput();
    await openDialog({
      title: "Create a tenant", action: "Create", content: [field("Name", name), field("Sandboxes that run at once", limit, "0 is no limit.")],
      submit: () => send("POST", "/admin/tenants", { name: name.value, maxRunning: Number(limit.value) }),
    });
    load();
  }, { class: "main" });
  content.append(h("h1", null, "Tenants"), h("div", { class: "bar" }, create), list);
  load();
}
