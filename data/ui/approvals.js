// SPDX-License-Identifier: Apache-2.0
// What waits for an answer of a person: commands and destinations.

import { get, send } from "./api.js";
import { act, errorPlace } from "./dialog.js";
import { button, h, pathOf } from "./dom.js";
import { relative, visible } from "./format.js";
import { poll } from "./poll.js";

const INTERVAL_MS = 2000;

// Whether this server has approvals at all.
export async function hasApprovals() {
  try {
    await get("/approvals");
    return true;
  } catch {
    return false;
  }
}

// Fields that the card shows in its own way
const KNOWN = new Set(["id", "sandboxID", "kind", "createdAt", "expiresAt"]);

function textOf(value) {
  if (value && typeof value === "object")
    return JSON.stringify(value);
  return String(value);
}

export function approvalsPage(content) {
  const list = h("div"), problem = errorPlace(() => polling.now()), cards = new Map();

  function card(one) {
    const answer = (allow, remember) => async (event) => {
      await act(event.target, () => send("POST", `/approvals/${encodeURIComponent(one.id)}`, { allow, remember }), allow ? "Allowed." : "Denied.");
      polling.now();
    };
    const facts = Object.entries(one).filter(([name, value]) => !KNOWN.has(name) && value !== null && value !== "");
    return h("section", { class: "card" }, h("h2", null, visible(one.kind || "request")),
      h("p", null, one.sandboxID && h("a", { class: "mono", href: pathOf("sandboxes", one.sandboxID) }, one.sandboxID), " ", one.createdAt && `asked ${relative(one.createdAt)}`, one.expiresAt && `, is denied ${relative(one.expiresAt)}`),
      h("dl", null, facts.flatMap(([name, value]) => [h("dt", null, visible(name)), h("dd", { class: "mono" }, visible(textOf(value)))])),
      h("div", { class: "actions" }, button("Deny", answer(false, false)), button("Always allow", answer(true, true)), button("Allow once", answer(true, false), { class: "main" })));
  }

  async function load() {
    const reply = await get("/approvals"), all = Array.isArray(reply) ? reply : reply.approvals || [];
    const ids = new Set(all.map((one) => one.id));
    for (const [id, element] of cards)
      if (!ids.has(id)) {
        element.remove();
        cards.delete(id);
      }
    for (const one of all)
      if (!cards.has(one.id)) {
        cards.set(one.id, card(one));
        list.append(cards.get(one.id));
      }
    empty.hidden = all.length > 0;
  }

  const empty = h("p", { class: "empty", hidden: true }, "Nothing waits for an answer.");
  content.append(h("h1", null, "Approvals"), problem.element, list, empty);
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => polling.stop();
}
