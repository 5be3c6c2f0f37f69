// SPDX-License-Identifier: Apache-2.0
// Requests to the server this page comes from.  The session is in a cookie that scripts
// cannot read; requests that change something also need the session's CSRF token.

let csrf = "";
let onEnd = () => {};

const NEXT = {
  400: "Check the values and try again.",
  401: "Log in again.",
  403: "Use a key that has this right.",
  404: "It may have ended or been removed: go back to the list.",
  409: "Its state has changed: reload and try again.",
  413: "Send less at once.",
  429: "Wait a moment, then try again.",
  500: "Look at the log of the server (journalctl -u cay).",
  501: "This server does not support it.",
  502: "The sandbox is paused or gone: look at its overview.",
  503: "The server is busy: try again in a few seconds.",
  504: "It took too long: try again.",
  507: "The disk is full: remove files or sandboxes.",
};

export class ApiError extends Error {
  constructor(status, message) {
    super(message || `The server replied with status ${status}.`);
    this.status = status;
    this.next = NEXT[status] || (status ? "" : "Check that the server runs and that you can reach it.");
  }
}

export function setSession(token, ended) {
  csrf = token;
  onEnd = ended;
}

// The error of a reply that is not 2xx.  Connect's errors have a word as their code.
async function errorOf(reply) {
  let message = "";
  try {
    message = String(JSON.parse((await reply.text()).slice(0, 65536)).message || "");
  } catch {
    // not JSON: the status has to do
  }
  return new ApiError(reply.status, message);
}

// Returns the Response; throws an ApiError for each other status than 2xx.
export async function request(method, path, { body, type, headers, signal } = {}) {
  const all = { ...headers };
  if (method !== "GET" && method !== "HEAD")
    all["X-Cay-Csrf"] = csrf;
  if (type)
    all["Content-Type"] = type;
  let reply;
  try {
    reply = await fetch(path, { method, body, headers: all, signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError")
      throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (reply.ok)
    return reply;
  const error = await errorOf(reply);
  if (reply.status === 401 && !path.startsWith("/ui/"))
    await checkSession(error);
  throw error;
}

// A sandbox also replies with 401, to a request of a user that it does not have.
async function checkSession(error) {
  const reply = await fetch("/ui/session", { credentials: "same-origin", cache: "no-store" }).catch(() => null);
  if (reply?.status === 401)
    onEnd();
  else
    error.next = "The sandbox refuses this user: its template needs one of this name.";
}

async function decode(reply) {
  const text = await reply.text();
  return text ? JSON.parse(text) : null;
}

export async function get(path, options) {
  return decode(await request("GET", path, options));
}

export async function send(method, path, value, options) {
  return decode(await request(method, path, value === undefined ? options
    : { ...options, body: JSON.stringify(value), type: "application/json" }));
}

// "?a=1&b=2" of the values that are set
export function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

// The route of a sandbox: /sandboxes/ID/REST
export function routeOf(id, rest, version) {
  return `${version || ""}/sandboxes/${encodeURIComponent(id)}${rest ? `/${rest}` : ""}`;
}
