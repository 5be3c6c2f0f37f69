// SPDX-License-Identifier: Apache-2.0
// Messages, errors and dialogs.

import { button, field, h } from "./dom.js";

const SHOWN_MS = 8000, MOST = 4;

// A short message at the edge of the page; screen readers read it, too.
export function notify(text, isError) {
  const box = document.getElementById("messages");
  const message = h("div", { class: isError ? "message error" : "message" }, h("span", null, text));
  message.append(button("×", () => message.remove(), { class: "quiet", "aria-label": "Close the message" }));
  while (box.childElementCount >= MOST)
    box.firstElementChild.remove();
  box.append(message);
  if (!isError)
    setTimeout(() => message.remove(), SHOWN_MS);
}

function textOf(error) {
  return error.next ? `${error.message.replace(/[.]?$/, ".")} ${error.next}` : error.message;
}

export function notifyError(error) {
  if (error.name !== "AbortError")
    notify(textOf(error), true);
}

// The message of an error, in place of what it concerns.
export function errorBox(error, retry) {
  return h("div", { class: "problem", role: "alert" }, h("p", null, h("strong", null, error.message)),
    error.next && h("p", null, error.next), retry && button("Try again", retry));
}

// A place for the error of a poll: shows it, and removes it when the poll works again.
export function errorPlace(retry) {
  const place = h("div");
  return {
    element: place,
    show(error) {
      if (!error)
        place.replaceChildren();
      else if (!place.textContent.startsWith(error.message)) // a screen reader reads it once
        place.replaceChildren(errorBox(error, retry));
    },
  };
}

// Opens a dialog with a form.  `submit` may throw: the dialog then shows the error and stays
// open.  Resolves to what `submit` returned, or undefined if the user cancelled.
export function openDialog({ title, content, action, danger, submit }) {
  return new Promise((resolve) => {
    const problem = h("div");
    const accept = h("button", { type: "submit", class: danger ? "danger" : "main" }, action);
    const heading = h("h2", { id: "dialog-title" }, title);
    let result;
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        accept.disabled = true;
        try {
          result = submit ? await submit(form) : true;
          dialog.close();
        } catch (error) {
          problem.replaceChildren(errorBox(error));
          accept.disabled = false;
        }
      },
    }, heading, content, problem, h("div", { class: "actions" },
      button("Cancel", () => dialog.close()), accept));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function confirm(title, text, action, submit) {
  return openDialog({ title, content: h("p", null, text), action, danger: true, submit: submit || (() => true) });
}

// One line of text
export function prompt({ title, label, value, hint, action, submit }) {
  const input = h("input", { type: "text", value: value || "", required: true, autocomplete: "off", spellcheck: "false" });
  return openDialog({ title, content: field(label, input, hint), action, submit: () => submit(input.value) });
}

// Runs an action of a button: off meanwhile, errors as a message.
export async function act(element, work, done) {
  element.disabled = true;
  try {
    const result = await work();
    if (done)
      notify(done);
    return result;
  } catch (error) {
    notifyError(error);
    return undefined;
  } finally {
    element.disabled = false;
  }
}
