// SPDX-License-Identifier: Apache-2.0
// What waits for an answer of a person: commands and connections; and remembered answers.

import { get, send } from "./api.js";
import { act, confirm, errorPlace, openDialog } from "./dialog.js";
import { button, field, h, pathOf, table } from "./dom.js";
import { bytes, relative, time, visible } from "./format.js";
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

function routeOf(one) {
  return `/approvals/${encodeURIComponent(one.approvalID)}`;
}

function sandboxLink(one) {
  return one.sandboxID ? h("a", { class: "mono", href: pathOf("sandboxes", one.sandboxID) }, one.sandboxID) : visible(one.scope || "");
}

// Line ends stay: the content is shown as lines.
function visibleLines(text) {
  return text.split("\n").map(visible).join("\n");
}

// One request that waits, with its answers.
function card(one, onAnswer) {
  const left = h("span", { title: time(one.expiresAt) }), content = h("div");
  const answer = (verdict, done) => (event) => act(event.target, () => send("POST", routeOf(one), { verdict }), done).then(onAnswer);

  async function deny() {
    const note = h("input", { maxlength: 500, autocomplete: "off" });
    await openDialog({
      title: "Deny the request?", action: "Deny", danger: true, content: field("Reason (may be empty)", note, "The program that waits gets it."),
      submit: () => send("POST", routeOf(one), note.value ? { verdict: "deny", note: note.value } : { verdict: "deny" }),
    });
    onAnswer();
  }

  async function showContent(event) {
    await act(event.target, async () => {
      const whole = await get(routeOf(one));
      content.replaceChildren(h("pre", { class: "output", tabindex: "0", "aria-label": "Content" }, visibleLines(whole.content || "")));
    });
  }

  const answers = one.decided ? h("p", { class: "hint" }, "It has an answer, which the program has not used yet.")
    : h("div", { class: "actions" }, button("Deny", deny), button("Always allow", answer("remember", "Allowed, also from now on.")), button("Allow once", answer("allow", "Allowed."), { class: "main" }));
  return {
    element: h("section", { class: "card" }, h("h2", null, one.kind === "egress" ? "Connection" : one.kind === "command" ? "Command" : visible(one.kind)),
      h("pre", { class: "output", tabindex: "0", "aria-label": "What waits" }, visibleLines(one.summary || one.subject || "")),
      h("dl", null, h("dt", null, "Sandbox"), h("dd", null, sandboxLink(one)), h("dt", null, "Asked"), h("dd", { title: time(one.createdAt) }, relative(one.createdAt)),
        h("dt", null, "Denied by itself"), h("dd", null, left), h("dt", null, "A rule would cover"), h("dd", { class: "mono" }, visible(one.subject || ""))),
      one.contentBytes > 0 && button(`Show the content (${bytes(one.contentBytes)})`, showContent, { class: "small" }), content, answers),
    update() {
      left.textContent = relative(one.expiresAt);
    },
  };
}

function ruleRow(one, onChange) {
  return h("tr", null, h("td", null, one.verdict === "deny" ? "deny" : "allow"), h("td", null, visible(one.kind)), h("td", null, sandboxLink(one)), h("td", { class: "mono long" }, visible(one.subject)),
    h("td", null, button("Remove", async () => {
      await confirm("Remove the rule?", visible(one.subject), "Remove", () => send("DELETE", `/approval-rules/${encodeURIComponent(one.ruleID)}`).then(() => true));
      onChange();
    }, { class: "small", "aria-label": `Remove the rule for ${visible(one.subject)}` })));
}

export function approvalsPage(content) {
  const list = h("div"), rules = h("div"), problem = errorPlace(() => polling.now()), cards = new Map();
  const empty = h("p", { class: "empty", hidden: true }, "Nothing waits for an answer.");
  let shownRules = "";

  async function loadRules() {
    const all = await get("/approval-rules"), text = JSON.stringify(all);
    if (text === shownRules)
      return;
    shownRules = text;
    rules.replaceChildren(all.length ? table("Remembered answers", ["Answer", "Kind", "Where", "Covers", "Action"], all.map((one) => ruleRow(one, () => polling.now())))
      : h("p", { class: "empty" }, "There are none."));
  }

  async function load() {
    const all = await get("/approvals");
    const made = all.map((one) => [`${one.approvalID} ${one.decided}`, one]), keys = new Set(made.map(([key]) => key));
    for (const [key, one] of cards)
      if (!keys.has(key)) {
        one.element.remove();
        cards.delete(key);
      }
    for (const [key, one] of made) {
      if (!cards.has(key)) {
        cards.set(key, card(one, () => polling.now()));
        list.append(cards.get(key).element);
      }
      cards.get(key).update();
    }
    empty.hidden = all.length > 0;
    await loadRules();
  }

  content.append(h("h1", null, "Approvals"), problem.element, list, empty, h("h2", null, "Remembered answers"), rules);
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => polling.stop();
}
