// SPDX-License-Identifier: Apache-2.0
// The login: the key goes to the server once, and is kept nowhere in the page.

import { send } from "./api.js";
import { errorBox } from "./dialog.js";
import { field, h } from "./dom.js";

export function loginPage(content, reason, done) {
  const key = h("input", { type: "password", required: true, autocomplete: "current-password", spellcheck: "false" });
  const submit = h("button", { type: "submit", class: "main" }, "Log in");
  const problem = h("div");
  const form = h("form", {
    id: "login",
    class: "card narrow",
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      problem.replaceChildren();
      try {
        await send("POST", "/ui/session", { apiKey: key.value.trim() });
        key.value = "";
        await done();
      } catch (error) {
        if (error.status === 401)
          error.next = "cay key ls shows the keys of a server, cay key new TENANT creates one.";
        problem.replaceChildren(errorBox(error));
        key.focus();
      }
      submit.disabled = false;
    },
  }, h("img", { src: "icon.svg", alt: "", width: 48, height: 48 }), h("h1", null, "Log in to Cay"), reason && h("p", { role: "status" }, reason),
  field("API key", key, "The server prints it when it starts: E2B_API_KEY."), problem, submit);
  content.replaceChildren(form);
  key.focus();
}
