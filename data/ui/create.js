// SPDX-License-Identifier: Apache-2.0
// Creates a sandbox from a template.

import { get, send } from "./api.js";
import { hasApprovals } from "./approvals.js";
import { errorBox } from "./dialog.js";
import { check, field, h, pathOf } from "./dom.js";

// "name=value" lines as an object
export function pairs(text, what) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1)
      throw Object.assign(new Error(`${what}: "${line}" has no "="`), { next: "Write one name=value on each line." });
    Object.defineProperty(found, line.slice(0, at).trim(), { value: line.slice(at + 1), enumerable: true, configurable: true });
  }
  return found;
}

function words(text) {
  return text.split(/[\s,]+/).filter(Boolean);
}

export function createPage(content, address) {
  const names = h("datalist", { id: "templates" }, h("option", { value: "base" }));
  const template = h("input", { required: true, list: "templates", value: address.query.get("template") || "base", spellcheck: "false", autocomplete: "off" });
  const timeout = h("input", { type: "number", min: 1, value: 3600, required: true });
  const metadata = h("textarea", { rows: 3, spellcheck: "false" }), envs = h("textarea", { rows: 3, spellcheck: "false" });
  const pauses = h("input", { type: "checkbox" }), internet = h("input", { type: "checkbox", checked: true });
  const allow = h("input", { spellcheck: "false" }), deny = h("input", { spellcheck: "false" });
  const commands = h("textarea", { rows: 2, spellcheck: "false" }), egress = h("input", { type: "checkbox" });
  const approvals = h("details", { hidden: true }, h("summary", null, "Approvals"),
    field("Commands that wait for an answer", commands, "One pattern on each line, for example git push*."), check("Connections to new hosts wait for an answer", egress));
  const problem = h("div"), submit = h("button", { type: "submit", class: "main" }, "Create");

  function request() {
    const body = {
      templateID: template.value.trim(), timeout: Number(timeout.value), autoPause: pauses.checked,
      metadata: pairs(metadata.value, "Metadata"), envVars: pairs(envs.value, "Environment"),
    };
    if (!internet.checked) // a server without internet refuses true
      body.allow_internet_access = false;
    const patterns = commands.value.split("\n").map((one) => one.trim()).filter(Boolean);
    if (patterns.length || egress.checked)
      body.approvals = { commands: patterns, egress: egress.checked };
    const network = {};
    if (words(allow.value).length)
      network.allowOut = words(allow.value);
    if (words(deny.value).length)
      network.denyOut = words(deny.value);
    return Object.keys(network).length ? { ...body, network } : body;
  }

  content.append(h("h1", null, "Create a sandbox"), h("form", {
    class: "card",
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      problem.replaceChildren();
      try {
        const made = await send("POST", "/v2/sandboxes", request());
        location.hash = pathOf("sandboxes", made.sandboxID);
      } catch (error) {
        problem.replaceChildren(errorBox(error));
        submit.disabled = false;
      }
    },
  }, field("Template", template, "base always exists; the list has the templates of this tenant."), names,
  field("Time to live, in seconds", timeout),
  field("Metadata", metadata, "One name=value on each line."),
  field("Environment variables", envs, "One name=value on each line."),
  check("Pause at the end of its time instead of killing it", pauses),
  check("Allow what the server allows on the internet", internet),
  h("details", null, h("summary", null, "Network rules"),
    field("Allow", allow, "Addresses, ranges and host names, with spaces between them."), field("Deny", deny)),
  approvals,
  problem, h("div", { class: "actions" }, h("a", { class: "button", href: "#/sandboxes" }, "Cancel"), submit)));

  const abort = new AbortController();
  get("/templates", { signal: abort.signal }).then((all) => {
    names.append(...all.flatMap((one) => one.names || []).map((name) => h("option", { value: name })));
  }).catch(() => {}); // the field works without suggestions
  hasApprovals().then((has) => {
    approvals.hidden = !has;
  });
  return () => abort.abort();
}
