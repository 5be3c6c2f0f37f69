// SPDX-License-Identifier: Apache-2.0
// Builds elements.  Text always becomes text nodes: nothing here parses HTML, since most
// texts come from sandboxes.

const SVG = "http://www.w3.org/2000/svg";

function set(element, name, value) {
  if (value === undefined || value === null || value === false)
    return;
  if (name.startsWith("on"))
    element.addEventListener(name.slice(2), value);
  else if (name === "value" || name === "checked")
    element[name] = value;
  else
    element.setAttribute(name, value === true ? "" : String(value));
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    set(element, name, value);
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

export function h(name, attributes, ...children) {
  return build(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

// A link to another page of the dashboard, by the parts of its path.
export function pathOf(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

// A table in a box of its own that scrolls: a wide one must not widen the page.
export function table(caption, columns, rows, attributes) {
  const head = columns.map((one) => (typeof one === "string" ? h("th", { scope: "col" }, one)
    : h("th", { scope: "col", class: one.class }, one.text)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes, h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}

export function button(text, onclick, attributes) {
  return h("button", { type: "button", onclick, ...attributes }, text);
}

let fields = 0;

// A label, its control and a hint.
export function field(label, control, hint) {
  const id = control.id || `field-${++fields}`;
  control.id = id;
  if (hint)
    control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control,
    hint && h("p", { class: "hint", id: `${id}-hint` }, hint));
}

export function check(label, control) {
  return h("label", { class: "check" }, control, label);
}

// Replaces texts only if they differ: a screen reader and a selection stay undisturbed.
export function setText(element, text) {
  if (element.textContent !== text)
    element.textContent = text;
}
