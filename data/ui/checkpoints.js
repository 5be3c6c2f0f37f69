// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a sandbox's files as a tree, their differences, and rollback.

import { get, query, request, routeOf, send } from "./api.js";
import { act, confirm, errorBox, openDialog } from "./dialog.js";
import { button, check, field, h } from "./dom.js";
import { bytes, relative, time, visible } from "./format.js";

const LINES = 4000;

function titleOf(one) {
  return one.name ? `${one.id} (${visible(one.name)})` : String(one.id);
}

// The class of a line of a unified difference
function kindOf(line) {
  if (/^(\+\+\+|---|diff |index )/.test(line))
    return "file";
  return { "+": "added", "-": "removed", "@": "place" }[line[0]];
}

function diffBox(text) {
  const lines = text.split("\n");
  const box = h("pre", { class: "output diff", tabindex: "0", "aria-label": "Differences" },
    lines.slice(0, LINES).map((line) => h("span", { class: kindOf(line) }, `${line}\n`)));
  return text ? [box, lines.length > LINES ? h("p", { class: "hint" }, `The first ${LINES} of ${lines.length} lines.`) : ""]
    : [h("p", { class: "empty" }, "There is no difference.")];
}

class Checkpoints {
  constructor(place, sandbox) {
    this.id = sandbox.id;
    this.signal = sandbox.signal;
    this.tree = h("div", null, h("p", null, "Loading…"));
    this.from = h("select");
    this.to = h("select");
    this.format = h("select", null, h("option", { value: "unified" }, "text"), h("option", { value: "stat" }, "lines per file"), h("option", { value: "names" }, "names of files"));
    this.result = h("div");
    this.compareForm = h("form", {
      class: "bar", hidden: true,
      onsubmit: (event) => {
        event.preventDefault();
        this.compare(event.submitter);
      },
    }, field("From", this.from), field("To", this.to), field("As", this.format), h("button", { type: "submit" }, "Compare"));
    place.append(h("div", { class: "bar" }, button("Create a checkpoint", () => this.create(), { class: "main" }), button("Reload", () => this.load())),
      this.tree, h("h2", { hidden: true }, "Differences"), this.compareForm, this.result);
    this.heading = place.querySelector("h2");
    this.load();
  }

  async load() {
    try {
      const all = await get(routeOf(this.id, "checkpoints"), { signal: this.signal });
      this.show(all);
    } catch (error) {
      if (error.name !== "AbortError")
        this.tree.replaceChildren(errorBox(error, () => this.load()));
    }
  }

  show(all) {
    const children = new Map();
    const ids = new Set(all.map((one) => one.id));
    for (const one of all) {
      const parent = ids.has(one.parent) ? one.parent : null;
      children.set(parent, [...(children.get(parent) || []), one]);
    }
    this.tree.replaceChildren(all.length ? this.list(children) : h("p", { class: "empty" }, "There are no checkpoints. One of them keeps the files as they are, so that you can return to them."));
    this.heading.hidden = this.compareForm.hidden = all.length === 0;
    const options = () => all.map((one) => h("option", { value: one.id }, `${titleOf(one)}`));
    const [from, to] = [this.from.value, this.to.value];
    this.from.replaceChildren(...options());
    this.to.replaceChildren(h("option", { value: "" }, "now"), ...options());
    this.from.value = from || String(all.at(-1)?.id || "");
    this.to.value = to;
  }

  // A chain of checkpoints is one list; only branches are lists in it.  Iterative, since a
  // chain may have thousands.
  list(children) {
    const top = h("ul", { class: "tree", "aria-label": "Checkpoints" });
    const waiting = [[null, top]];
    while (waiting.length) {
      const [parent, list] = waiting.pop();
      let next = children.get(parent) || [];
      while (next.length === 1) {
        list.append(this.item(next[0]));
        next = children.get(next[0].id) || [];
      }
      for (const one of next) {
        const inner = h("ul"), item = this.item(one);
        list.append(h("li", { class: "branch" }, inner));
        inner.append(item);
        waiting.push([one.id, inner]);
      }
    }
    return top;
  }

  item(one) {
    return h("li", { class: one.current ? "current" : null },
      h("div", { class: "checkpoint" }, h("strong", null, titleOf(one)), one.current && h("span", { class: "state running" }, "current"),
        h("span", { class: "hint", title: time(one.createdAt) }, `${visible(one.cause || "")}, ${relative(one.createdAt)}, ${one.files} ${one.files === 1 ? "file" : "files"}, ${bytes(one.bytes)}`),
        h("span", { class: "buttons" },
          one.parent && button("Changes", (event) => this.choose(event.target, one.parent, one.id), { class: "small", "aria-label": `Changes of checkpoint ${one.id}` }),
          button("Compare with now", (event) => this.choose(event.target, one.id, ""), { class: "small", "aria-label": `Compare with now: checkpoint ${one.id}` }),
          button("Roll back", () => this.rollBack(one), { class: "small", "aria-label": `Roll back to checkpoint ${one.id}` }))));
  }

  choose(element, from, to) {
    this.from.value = String(from);
    this.to.value = String(to);
    return this.compare(element);
  }

  async compare(element) {
    await act(element, async () => {
      const reply = await request("GET", routeOf(this.id, "diff") + query({ from: this.from.value, to: this.to.value, format: this.format.value }), { signal: this.signal }).catch((error) => {
        if (error.status === 501)
          error.next = "Sandboxes of other templates can be compared.";
        throw error;
      });
      this.result.replaceChildren(...diffBox(await reply.text()));
      this.result.scrollIntoView({ block: "nearest" });
    });
  }

  async create() {
    const name = h("input", { pattern: "[A-Za-z0-9_.\\-]*", autocomplete: "off", spellcheck: "false" });
    const stop = h("input", { type: "checkbox" });
    await openDialog({
      title: "Create a checkpoint", action: "Create",
      content: [field("Name (may be empty)", name, 'Letters, digits, "_", "." and "-".'), check("End the processes first", stop)],
      submit: () => send("POST", routeOf(this.id, "checkpoints"), name.value ? { name: name.value, stop: stop.checked } : { stop: stop.checked }),
    });
    this.load();
  }

  async rollBack(one) {
    await confirm(`Roll back to checkpoint ${titleOf(one)}?`, "Its files are restored and all processes end. What has changed since the last checkpoint becomes a checkpoint.", "Roll back",
      () => send("POST", routeOf(this.id, "rollback"), { checkpoint: one.id }));
    this.load();
  }
}

export function checkpointsTab(place, sandbox) {
  new Checkpoints(place, sandbox);
  return null;
}
