// SPDX-License-Identifier: Apache-2.0
// The facts of a sandbox: template, times, limits, network rules, metadata.

import { get, routeOf } from "./api.js";
import { errorPlace } from "./dialog.js";
import { h, pathOf, setText } from "./dom.js";
import { bytes, percent, relative, time, visible } from "./format.js";
import { poll } from "./poll.js";

const INTERVAL_MS = 5000;

function facts(title, names) {
  const values = names.map((name) => [h("dt", null, name), h("dd")]);
  return { element: h("section", { class: "card" }, h("h2", null, title), h("dl", null, values)), values: values.map(([, value]) => value) };
}

function set(values, texts) {
  texts.forEach((text, at) => setText(values[at], text || "–"));
}

function list(values) {
  return values && values.length ? values.map(visible).join(", ") : "";
}

function put(values, detail) {
  const network = detail.network || {}, life = detail.lifecycle || {};
  const date = (text) => (text ? `${time(text)} (${relative(text)})` : "");
  set(values.about, [visible(detail.templateID), date(detail.startedAt), date(detail.endAt),
    life.onTimeout === "pause" ? "it is paused" : "it is killed", life.autoResume ? "yes" : "no", detail.envdVersion]);
  set(values.limits, [detail.cpuCount ? `${detail.cpuCount}` : "none", detail.memoryMB ? bytes(detail.memoryMB * 2 ** 20) : "none",
    detail.diskSizeMB ? bytes(detail.diskSizeMB * 2 ** 20) : "none"]);
  set(values.network, [detail.allowInternetAccess ? "as the server allows" : "no", list(network.allowOut), list(network.denyOut),
    network.allowPublicTraffic === false ? "only with the traffic token" : "yes"]);
}

function usage(id, place, signal) {
  const names = ["CPU", "Memory", "Disk", "Connections"];
  const all = facts("In use now", names);
  place.append(all.element);
  return async () => {
    const metric = ((await get(`/sandboxes/metrics?sandbox_ids=${encodeURIComponent(id)}`, { signal })).sandboxes || {})[id];
    if (!metric)
      return;
    const of = (used, total) => bytes(used) + (total ? ` of ${bytes(total)}` : "");
    set(all.values, [percent(metric.cpuUsedPct), of(metric.memUsed, metric.memTotal), of(metric.diskUsed, metric.diskTotal),
      String(metric.networkConnections ?? 0)]);
  };
}

export function overviewTab(place, sandbox) {
  const about = facts("About", ["Template", "Started", "Ends", "At its end", "Resumes by itself", "envd version"]);
  const limits = facts("Limits", ["CPUs", "Memory", "Disk"]);
  const network = facts("Network", ["Internet", "Allowed", "Denied", "Ports are public"]);
  const metadata = h("dl"), problem = errorPlace(() => polling.now());
  const cards = h("div", { class: "cards" }, about.element, limits.element);
  place.append(problem.element, cards);
  const load = usage(sandbox.id, cards, sandbox.signal);
  cards.append(network.element, h("section", { class: "card" }, h("h2", null, "Metadata"), metadata));
  let shown = "";
  const off = sandbox.onChange((detail) => {
    put({ about: about.values, limits: limits.values, network: network.values }, detail);
    const pairs = Object.entries(detail.metadata || {}), text = JSON.stringify(pairs);
    if (text !== shown)
      metadata.replaceChildren(...(pairs.length ? pairs.flatMap(([name, value]) => [h("dt", null, visible(name)), h("dd", null, visible(value))])
        : [h("dt", null, "none"), h("dd")]));
    shown = text;
  });
  place.append(h("p", null, h("a", { class: "button", href: pathOf("sandboxes", sandbox.id, "terminal") }, "Open a terminal")));
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => {
    off();
    polling.stop();
  };
}
