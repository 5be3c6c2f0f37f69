// SPDX-License-Identifier: Apache-2.0
// Files and processes of a sandbox: the Connect protocol in JSON, and /files.

import { ApiError, query, request, send } from "./api.js";

const FLAG_END = 2, ENVELOPE = 5, MESSAGE_MAX = 16 << 20;

function headersOf(id) {
  return { "E2b-Sandbox-Id": id };
}

export function call(id, method, message, signal) {
  return send("POST", `/${method}`, message, { headers: headersOf(id), signal });
}

function envelope(message) {
  const text = new TextEncoder().encode(JSON.stringify(message));
  const all = new Uint8Array(ENVELOPE + text.length);
  new DataView(all.buffer).setUint32(1, text.length);
  all.set(text, ENVELOPE);
  return all;
}

// Cuts the messages out of pieces of a stream.  The peer is a sandbox's server: a message
// that is too long ends the stream instead of the memory of this page.
class Envelopes {
  constructor() {
    this.waiting = new Uint8Array(0);
  }

  push(piece) {
    const all = new Uint8Array(this.waiting.length + piece.length);
    all.set(this.waiting);
    all.set(piece, this.waiting.length);
    this.waiting = all;
  }

  // [flags, message], or null if it is not complete
  next() {
    if (this.waiting.length < ENVELOPE)
      return null;
    const view = new DataView(this.waiting.buffer, this.waiting.byteOffset);
    const length = view.getUint32(1), end = ENVELOPE + length;
    if (length > MESSAGE_MAX)
      throw new ApiError(0, "The stream contains a message that is too large.");
    if (this.waiting.length < end)
      return null;
    const text = new TextDecoder().decode(this.waiting.subarray(ENVELOPE, end));
    const flags = this.waiting[0];
    this.waiting = this.waiting.subarray(end);
    return [flags, JSON.parse(text)];
  }
}

// Calls onMessage for each message, and reads on when its promise is kept.  Returns at the end of the stream; throws its error, or
// one with the status 0 if the connection broke.
export async function stream(id, method, message, onMessage, signal) {
  const reply = await request("POST", `/${method}`, {
    headers: { ...headersOf(id), "Keepalive-Ping-Interval": "30" },
    type: "application/connect+json", body: envelope(message), signal,
  });
  const reader = reply.body.getReader();
  const envelopes = new Envelopes();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw error.name === "AbortError" ? error : new ApiError(0, "The connection broke.");
      });
      if (done)
        throw new ApiError(0, "The connection ended.");
      envelopes.push(value);
      for (let one = envelopes.next(); one; one = envelopes.next()) {
        const [flags, body] = one;
        if (flags & FLAG_END) {
          if (body.error)
            throw new ApiError(STATUS[body.error.code] || 500, body.error.message);
          return;
        }
        await onMessage(body);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const STATUS = {
  invalid_argument: 400, unauthenticated: 401, permission_denied: 403, not_found: 404, already_exists: 409,
  resource_exhausted: 429, unimplemented: 501, unavailable: 503, deadline_exceeded: 504,
};

// --- Bytes in JSON ---

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}

export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

// --- Files ---

export async function listDirectory(id, path) {
  return (await call(id, "filesystem.Filesystem/ListDir", { path, depth: 1 })).entries || [];
}

export async function stat(id, path) {
  return (await call(id, "filesystem.Filesystem/Stat", { path })).entry;
}

export async function read(id, path, most) {
  const reply = await request("GET", `/files${query({ path })}`, {
    headers: { ...headersOf(id), ...(most ? { Range: `bytes=0-${most - 1}` } : {}) },
  }).catch((error) => {
    if (error.status === 416) // an empty file has no ranges
      return new Response("");
    throw error;
  });
  return new Uint8Array(await reply.arrayBuffer());
}

export function write(id, path, body) {
  return request("POST", `/files${query({ path })}`, {
    headers: headersOf(id), type: "application/octet-stream", body,
  });
}

// A link cannot send headers: the session's own way to name the sandbox.
export function downloadPath(id, path) {
  return `/files${query({ path, sandbox: id })}`;
}

export function join(folder, name) {
  return `${folder.replace(/\/+$/, "")}/${name}`;
}

export function parent(path) {
  return path.replace(/\/+[^/]*\/*$/, "") || "/";
}
