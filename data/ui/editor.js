// SPDX-License-Identifier: Apache-2.0
// Shows a file: text to edit, a picture, or the first bytes of something else.

import { act, confirm, errorBox, notify } from "./dialog.js";
import { button, h, setText } from "./dom.js";
import { downloadPath, parent, read, stat, toBase64, write } from "./envd.js";
import { bytes, visible } from "./format.js";

const TEXT_MAX = 1 << 20, PICTURE_MAX = 4 << 20, DUMP_MAX = 4096, LINE = 16;
const PICTURES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

// Null if the bytes are not text.
function asText(data) {
  if (data.includes(0))
    return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

function dump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, DUMP_MAX); at += LINE) {
    const part = [...data.subarray(at, at + LINE)];
    const codes = part.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(3 * LINE);
    lines.push(`${at.toString(16).padStart(8, "0")}  ${codes} ${part.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("")}`);
  }
  return lines.join("\n");
}

class Editor {
  constructor(place, id, path) {
    Object.assign(this, { place, id, path, text: null, changed: "" });
    this.status = h("span", { role: "status" }, "Loading…");
    this.saveButton = button("Save", () => this.save(), { class: "main", disabled: true, hidden: true });
    this.body = h("div");
    place.append(h("div", { class: "bar" }, this.saveButton, h("a", { class: "button", href: downloadPath(id, path), download: path.split("/").pop() }, "Download"),
      button("Reload", () => this.reload()), this.status), this.body);
    this.onLeave = (event) => {
      if (this.isChanged())
        event.preventDefault();
    };
    addEventListener("beforeunload", this.onLeave);
    this.load();
  }

  isChanged() {
    return this.area && this.area.value !== this.text;
  }

  async load() {
    try {
      const entry = await stat(this.id, this.path);
      const size = Number(entry.size), type = PICTURES[this.path.split(".").pop().toLowerCase()];
      this.changed = entry.modifiedTime;
      this.area = null;
      this.saveButton.hidden = true;
      setText(this.status, `${bytes(size)}, ${entry.permissions}`);
      if (type && size <= PICTURE_MAX)
        this.showPicture(type, await read(this.id, this.path));
      else
        this.showData(await read(this.id, this.path, TEXT_MAX), size);
    } catch (error) {
      setText(this.status, "");
      this.body.replaceChildren(errorBox(error, () => this.load()));
    }
  }

  showPicture(type, data) {
    this.body.replaceChildren(h("img", { class: "picture", src: `data:${type};base64,${toBase64(data)}`, alt: visible(this.path) }));
  }

  showData(data, size) {
    const text = data.length >= size ? asText(data) : null;
    if (text === null) {
      setText(this.status, `${bytes(size)}: ${size > TEXT_MAX ? "too large to edit here" : "not text"}. Download it to see all.`);
      this.body.replaceChildren(h("pre", { class: "output", tabindex: "0", "aria-label": "The first bytes" }, dump(data)));
      return;
    }
    // A text area has only \n: a file with other line ends keeps them.
    this.lineEnd = text.includes("\r\n") && !/[^\r]\n/.test(text) ? "\r\n" : "\n";
    if (this.lineEnd === "\n" && text.includes("\r")) {
      setText(this.status, `${bytes(size)}: mixed line ends, which cannot be edited here.`);
      this.body.replaceChildren(h("pre", { class: "output", tabindex: "0", "aria-label": "The text" }, text));
      return;
    }
    this.text = text.replaceAll("\r\n", "\n");
    this.area = h("textarea", {
      class: "editor mono", spellcheck: "false", autocapitalize: "off", value: this.text, "aria-label": `Text of ${visible(this.path)}`,
      oninput: () => this.update(),
      onkeydown: (event) => {
        if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          this.save();
        }
      },
    });
    this.saveButton.hidden = false;
    this.body.replaceChildren(this.area);
    this.update();
  }

  update() {
    this.saveButton.disabled = !this.isChanged();
  }

  async save() {
    if (!this.isChanged())
      return;
    const text = this.area.value;
    await act(this.saveButton, async () => {
      const entry = await stat(this.id, this.path).catch((error) => {
        if (error.status === 404)
          return null;
        throw error;
      });
      if (entry && entry.modifiedTime !== this.changed
          && !await confirm("Overwrite the file?", "It has changed in the sandbox since this page read it.", "Overwrite"))
        return;
      await write(this.id, this.path, new Blob([text.replaceAll("\n", this.lineEnd)]));
      this.text = text;
      const now = await stat(this.id, this.path);
      this.changed = now.modifiedTime;
      setText(this.status, `${bytes(now.size)}, ${now.permissions}`);
      notify("Saved.");
    });
    this.update();
    this.area.focus();
  }

  async reload() {
    if (!this.isChanged() || await confirm("Discard the changes?", "The file is read again.", "Discard"))
      this.load();
  }

  leave() {
    removeEventListener("beforeunload", this.onLeave);
    if (this.isChanged())
      notify(`The changes of ${visible(this.path)} were not saved.`, true);
  }
}

export function editor(place, id, path) {
  const one = new Editor(place, id, path);
  place.querySelector(".bar").append(h("a", { class: "button", href: `#/sandboxes/${encodeURIComponent(id)}/files?${new URLSearchParams({ path: parent(path) })}` }, "Close"));
  return () => one.leave();
}
