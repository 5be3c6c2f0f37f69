// SPDX-License-Identifier: Apache-2.0
// The files of a sandbox: a folder's list, and what can be done with each entry.

import { query } from "./api.js";
import { act, confirm, errorBox, notify, openDialog, prompt } from "./dialog.js";
import { button, field, h, pathOf, table } from "./dom.js";
import { editor } from "./editor.js";
import { call, downloadPath, join, listDirectory, parent, stat, write } from "./envd.js";
import { bytes, relative, time, visible } from "./format.js";

const HOME = "/home/user", MOST = 2000;

export function addressOf(id, path, isFile) {
  return pathOf("sandboxes", id, "files") + query({ path, file: isFile ? 1 : "" });
}

function checkName(name) {
  if (!name || name === "." || name === ".." || name.includes("/") || name.includes("\0"))
    throw Object.assign(new Error(`"${visible(name)}" is not a file name.`), { next: 'Use a name without "/".' });
  return name;
}

function crumbs(id, path) {
  const parts = path.split("/").filter(Boolean);
  const links = [h("a", { href: addressOf(id, "/") }, "/")];
  parts.forEach((part, at) => {
    links.push(at ? " / " : " ", at === parts.length - 1 ? h("span", { "aria-current": "location" }, visible(part))
      : h("a", { href: addressOf(id, `/${parts.slice(0, at + 1).join("/")}`) }, visible(part)));
  });
  return h("nav", { class: "crumbs mono", "aria-label": "Folder" }, links);
}

function isFolder(entry) {
  return entry.type === "FILE_TYPE_DIRECTORY";
}

function sorted(entries) {
  return entries.sort((a, b) => isFolder(b) - isFolder(a) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

class Folder {
  constructor(place, id, path) {
    Object.assign(this, { id, path });
    this.list = h("div", null, h("p", null, "Loading…"));
    this.input = h("input", { type: "file", multiple: true, class: "unseen", tabindex: "-1", "aria-label": "Files to upload", onchange: () => this.upload() });
    this.uploadButton = button("Upload", () => this.input.click());
    place.append(crumbs(id, path), h("div", { class: "bar" },
      path !== "/" && h("a", { class: "button", href: addressOf(id, parent(path)) }, "Up"),
      button("New folder", () => this.makeFolder()), button("New file", () => this.makeFile()),
      this.uploadButton, this.input, button("Reload", () => this.load())), this.list);
    this.load();
  }

  async load() {
    try {
      this.show(sorted(await listDirectory(this.id, this.path)));
    } catch (error) {
      if (error.name !== "AbortError")
        this.list.replaceChildren(errorBox(error, () => this.load()));
    }
  }

  show(entries) {
    if (entries.length === 0) {
      this.list.replaceChildren(h("p", { class: "empty" }, "The folder is empty."));
      return;
    }
    this.list.replaceChildren(
      table("Files", ["Name", { text: "Size", class: "number" }, "Permissions", "Owner", "Modified", "Actions"], entries.slice(0, MOST).map((one) => this.row(one))),
      entries.length > MOST ? h("p", { class: "hint" }, `The first ${MOST} of ${entries.length} entries. Use a terminal for the others.`) : "");
  }

  row(entry) {
    const path = join(this.path, entry.name), name = visible(entry.name);
    const isFile = entry.type === "FILE_TYPE_FILE";
    const shown = isFolder(entry) ? h("a", { class: "mono folder", href: addressOf(this.id, path) }, `${name}/`)
      : isFile ? h("a", { class: "mono", href: addressOf(this.id, path, true) }, name) : h("span", { class: "mono" }, name);
    return h("tr", null, h("th", { scope: "row" }, shown, entry.symlinkTarget && h("span", { class: "hint mono" }, ` → ${visible(entry.symlinkTarget)}`)),
      h("td", { class: "number" }, isFile ? bytes(entry.size) : ""), h("td", { class: "mono" }, entry.permissions),
      h("td", null, visible(`${entry.owner}:${entry.group}`)), h("td", { title: time(entry.modifiedTime) }, relative(entry.modifiedTime)),
      h("td", { class: "buttons" }, isFile && h("a", { class: "button small", href: downloadPath(this.id, path), download: entry.name, "aria-label": `Download ${name}` }, "Download"),
        button("Rename", () => this.rename(path, entry.name), { class: "small", "aria-label": `Rename ${name}` }),
        button("Remove", () => this.remove(path, entry), { class: "small", "aria-label": `Remove ${name}` })));
  }

  async makeFolder() {
    await prompt({
      title: "New folder", label: "Name", action: "Create",
      submit: (name) => call(this.id, "filesystem.Filesystem/MakeDir", { path: join(this.path, checkName(name)) }),
    });
    this.load();
  }

  async makeFile() {
    const path = await prompt({
      title: "New file", label: "Name", action: "Create",
      submit: async (name) => {
        const made = join(this.path, checkName(name));
        if (await this.exists(made))
          throw Object.assign(new Error(`${visible(name)} exists already.`), { next: "Use another name." });
        await write(this.id, made, new Blob([]));
        return made;
      },
    });
    if (path)
      location.hash = addressOf(this.id, path, true);
  }

  async exists(path) {
    try {
      await stat(this.id, path);
      return true;
    } catch (error) {
      if (error.status === 404)
        return false;
      throw error;
    }
  }

  async rename(path, old) {
    const to = h("input", { value: path, required: true, spellcheck: "false", autocomplete: "off" });
    await openDialog({
      title: `Rename ${visible(old)}`, content: field("New path", to), action: "Rename",
      submit: async () => {
        const destination = to.value.startsWith("/") ? to.value : join(this.path, to.value);
        if (destination !== path && await this.exists(destination))
          throw Object.assign(new Error(`${visible(destination)} exists already.`), { next: "Remove it first, or use another name." });
        await call(this.id, "filesystem.Filesystem/Move", { source: path, destination });
      },
    });
    this.load();
  }

  async remove(path, entry) {
    await confirm(`Remove ${visible(entry.name)}?`, isFolder(entry) ? "The folder is removed with all that is in it." : "The file cannot be restored, unless a checkpoint has it.",
      "Remove", () => call(this.id, "filesystem.Filesystem/Remove", { path }).then(() => true));
    this.load();
  }

  async upload() {
    const files = [...this.input.files];
    this.input.value = "";
    await act(this.uploadButton, async () => {
      for (const file of files) {
        const path = join(this.path, checkName(file.name));
        if (await this.exists(path) && !await confirm(`Replace ${visible(file.name)}?`, "A file of this name exists.", "Replace"))
          continue;
        await write(this.id, path, file);
        notify(`${visible(file.name)} was uploaded (${bytes(file.size)}).`);
      }
    });
    this.load();
  }
}

export function filesTab(place, sandbox, address) {
  const path = address.query.get("path") || HOME;
  if (address.query.get("file")) {
    place.append(crumbs(sandbox.id, path));
    return editor(place, sandbox.id, path);
  }
  new Folder(place, sandbox.id, path.replace(/\/+$/, "") || "/");
  return null;
}
