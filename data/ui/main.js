// SPDX-License-Identifier: Apache-2.0
// The dashboard: finds out who is logged in, and shows the page that the address names.

import { get, send, setSession } from "./api.js";
import { approvalsPage, hasApprovals } from "./approvals.js";
import { createPage } from "./create.js";
import { errorBox, notifyError } from "./dialog.js";
import { h } from "./dom.js";
import { keysPage } from "./keys.js";
import { listPage } from "./list.js";
import { loginPage } from "./login.js";
import { sandboxPage } from "./sandbox.js";
import { templatePage, templatesPage } from "./templates.js";
import { tenantsPage } from "./tenants.js";
import { endTerminals } from "./terminal.js";

const content = document.getElementById("content");
const pages = { sandboxes: listPage, create: createPage, templates: templatesPage, approvals: approvalsPage, keys: keysPage, tenants: tenantsPage };
let session = null;
let leave = null; // ends what the shown page does
let shown = "";

// "#/sandboxes/ID/files?path=/x" as {parts, query}
function readAddress() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = [];
  }
  return { parts, query: new URLSearchParams(text || "") };
}

function pageOf(parts) {
  if (parts[0] === "sandboxes" && parts.length > 1)
    return sandboxPage;
  if (parts[0] === "templates" && parts.length > 1)
    return templatePage;
  return pages[parts[0]] || listPage;
}

// On a phone the links are wider than the page.
function showCurrentLink() {
  const nav = document.getElementById("nav"), link = nav.querySelector("[aria-current]");
  if (link)
    nav.scrollLeft += link.getBoundingClientRect().left - nav.getBoundingClientRect().left - (nav.clientWidth - link.clientWidth) / 2;
}

function end() {
  leave?.();
  leave = null;
}

function show() {
  if (!session)
    return;
  const address = readAddress();
  end();
  const name = address.parts[0] in pages && address.parts[0] !== "create" ? address.parts[0] : "sandboxes";
  for (const link of document.querySelectorAll("#nav a"))
    link.toggleAttribute("aria-current", link.dataset.page === name);
  for (const link of document.querySelectorAll("#nav a[aria-current]"))
    link.setAttribute("aria-current", "page");
  showCurrentLink();
  content.replaceChildren();
  try {
    leave = pageOf(address.parts)(content, address, session) || null;
  } catch (error) {
    content.replaceChildren(errorBox(error));
  }
  const heading = content.querySelector("h1");
  document.title = heading ? `${heading.textContent} – Cay` : "Cay";
  const place = address.parts.slice(0, 2).join("/");
  if (shown && shown !== place) { // the reader is on another page: begin at its top
    for (const message of document.querySelectorAll("#messages .error")) // of the page before
      message.remove();
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  shown = place || "sandboxes";
}

function showNavigation(withApprovals) {
  const links = [["sandboxes", "Sandboxes"], ["templates", "Templates"], withApprovals && ["approvals", "Approvals"],
    ["keys", "Keys"], session.admin && ["tenants", "Tenants"]];
  document.getElementById("nav").replaceChildren(...links.filter(Boolean).map(([page, text]) => (
    h("a", { href: `#/${page}`, "data-page": page }, text))));
  document.getElementById("tenant").textContent = session.tenant + (session.admin ? " (admin)" : "");
  document.getElementById("header").hidden = false;
}

async function begin() {
  try {
    session = await get("/ui/session");
  } catch (error) {
    if (error.status !== 401) {
      content.replaceChildren(h("h1", null, "Cay"), errorBox(error, begin));
      return;
    }
    showLogin();
    return;
  }
  setSession(session.csrf, () => showLogin("The session is over: log in again."));
  showNavigation(false);
  show();
  if (await hasApprovals() && session) {
    showNavigation(true);
    for (const link of document.querySelectorAll("#nav a"))
      if (link.dataset.page === (readAddress().parts[0] || "sandboxes"))
        link.setAttribute("aria-current", "page");
    showCurrentLink();
  }
}

function showLogin(reason) {
  if (!session && content.querySelector("#login"))
    return;
  session = null;
  end();
  endTerminals();
  for (const dialog of document.querySelectorAll("dialog"))
    dialog.close();
  document.getElementById("header").hidden = true;
  document.title = "Log in – Cay";
  shown = "";
  loginPage(content, reason, begin);
}

document.getElementById("logout").addEventListener("click", async () => {
  try {
    await send("DELETE", "/ui/session");
  } catch (error) {
    if (error.status !== 401) {
      notifyError(error);
      return;
    }
  }
  showLogin();
});

// "#content" is no page of the dashboard.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});

addEventListener("hashchange", show);
begin();
