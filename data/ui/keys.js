// SPDX-License-Identifier: Apache-2.0
// API keys of a tenant: the own one's, and for admin keys those of others.  Only an admin key
// may change them.

import { get, send } from "./api.js";
import { confirm, errorBox, openDialog, prompt } from "./dialog.js";
import { button, h, table } from "./dom.js";
import { relative, time, visible } from "./format.js";

function maskOf({ mask }) {
  return mask ? `${mask.prefix || ""}${mask.maskedValuePrefix || ""}…${mask.maskedValueSuffix || ""}` : "";
}

// The server stores only a digest: this is the one time that the key can be read.
function showKey(key) {
  const text = h("input", { class: "mono", readonly: true, value: key, "aria-label": "The new key", onfocus: (event) => event.target.select() });
  return openDialog({ title: "The new key", content: [h("p", null, "Copy it now: it is not shown again."), text], action: "Done" });
}

// `route`: "/api-keys", or that of a tenant.
export function keyList(place, route, session) {
  const list = h("div", null, h("p", null, "Loading…"));

  async function load() {
    try {
      const all = await get(route);
      list.replaceChildren(all.length ? table("API keys", ["Name", "Key", "Created", "Kind", session.admin && "Actions"].filter(Boolean), all.map(row)) : h("p", { class: "empty" }, "There are no keys."));
    } catch (error) {
      list.replaceChildren(errorBox(error, load));
    }
  }

  function row(one) {
    const name = visible(one.name || "");
    return h("tr", null, h("th", { scope: "row" }, name || "–"), h("td", { class: "mono" }, maskOf(one)),
      h("td", { title: time(one.createdAt) }, relative(one.createdAt)), h("td", null, one.admin ? "admin" : "tenant"), session.admin && h("td", { class: "buttons" },
        button("Rename", async () => {
          await prompt({ title: "Rename the key", label: "Name", value: one.name, action: "Rename", submit: (value) => send("PATCH", `${route}/${encodeURIComponent(one.id)}`, { name: value }).then(() => true) });
          load();
        }, { class: "small", "aria-label": `Rename the key ${name || maskOf(one)}` }),
        button("Revoke", async () => {
          await confirm(`Revoke the key ${name || maskOf(one)}?`, "Programs that use it, and logins with it, stop working at once.", "Revoke",
            () => send("DELETE", `${route}/${encodeURIComponent(one.id)}`).then(() => true));
          load();
        }, { class: "small", "aria-label": `Revoke the key ${name || maskOf(one)}` })));
  }

  place.append(session.admin ? h("div", { class: "bar" }, button("Create a key", async () => {
    const made = await prompt({ title: "Create a key", label: "Name", hint: "What or who will use it.", action: "Create", submit: (name) => send("POST", route, { name }) });
    if (made)
      await showKey(made.key);
    load();
  }, { class: "main" })) : h("p", { class: "hint" }, "With an admin key (cay key new --admin) this page creates, renames and revokes keys."), list);
  load();
}

export function keysPage(content, address, session) {
  content.append(h("h1", null, "API keys"), h("p", { class: "hint" }, `Keys of the tenant ${visible(session.tenant)}.`));
  keyList(content, "/api-keys", session);
}
