// SPDX-License-Identifier: Apache-2.0
// Numbers and times as text.

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(count) || 0, unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++)
    value /= 1024;
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function percent(value) {
  return `${(Number(value) || 0).toFixed(value < 10 ? 1 : 0)} %`;
}

export function duration(seconds) {
  const left = Math.max(0, Math.round(seconds));
  if (left < 60)
    return `${left} s`;
  if (left < 3600)
    return `${Math.floor(left / 60)} min`;
  if (left < 172800)
    return `${Math.floor(left / 3600)} h ${Math.floor(left % 3600 / 60)} min`;
  return `${Math.floor(left / 86400)} days`;
}

export function time(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

// "3 min ago", "in 2 h"
export function relative(text) {
  const seconds = (new Date(text).getTime() - Date.now()) / 1000;
  if (Number.isNaN(seconds))
    return "";
  return seconds < 0 ? `${duration(-seconds)} ago` : `in ${duration(seconds)}`;
}

// Escape sequences of terminals, for places that show output as plain text.
export function plain(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g, "").replace(/\r\n/g, "\n");
}

// Characters that change the order of text or show nothing would disguise a name.
export function visible(name) {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}
