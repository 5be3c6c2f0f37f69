// SPDX-License-Identifier: Apache-2.0
// Tenants and their keys: for admin keys only.

import { get } from "./api.js";
import { errorBox, prompt } from "./dialog.js";
import { button, h, pathOf, table } from "./dom.js";
import { visible } from "./format.js";
import { keyList } from "./keys.js";

const NAME = /^[A-Za-z0-9_.-]{1,63}$/;

function tenantKeys(content, name, session) {
  content.append(h("p", { class: "crumbs" }, h("a", { href: "#/tenants" }, "Tenants")), h("h1", null, visible(name)), h("h2", null, "API keys"));
  keyList(content, `/admin/tenants/${encodeURIComponent(name)}/keys`, session);
}

export function tenantsPage(content, address, session) {
  if (address.parts[1]) {
    tenantKeys(content, address.parts[1], session);
    return;
  }
  const list = h("div", null, h("p", null, "Loading…"));

  function row(one) {
    return h("tr", null, h("th", { scope: "row" }, h("a", { href: pathOf("tenants", one.name) }, visible(one.name))),
      [one.running, one.paused, one.keys].map((count) => h("td", { class: "number" }, String(count ?? ""))));
  }

  async function load() {
    try {
      const all = await get("/admin/tenants");
      list.replaceChildren(table("Tenants", ["Name", ...["Running", "Paused", "Keys"].map((text) => ({ text, class: "number" }))], all.map(row)));
    } catch (error) {
      list.replaceChildren(errorBox(error, load));
    }
  }

  // A tenant exists as soon as it has a key.
  function open(name) {
    if (!NAME.test(name))
      throw Object.assign(new Error(`"${name}" is not a name of a tenant.`), { next: 'Use letters, digits, "-", "_" and ".".' });
    location.hash = pathOf("tenants", name);
    return true;
  }

  content.append(h("h1", null, "Tenants"), h("div", { class: "bar" }, button("Create a tenant", () => prompt({
    title: "Create a tenant", label: "Name", hint: "Its first key creates it.", action: "Continue", submit: open,
  }), { class: "main" })), list);
  load();
}
