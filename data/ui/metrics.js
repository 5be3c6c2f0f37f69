// SPDX-License-Identifier: Apache-2.0
// What a sandbox used, as charts and as a table.

import { get, query, routeOf } from "./api.js";
import { Chart } from "./chart.js";
import { errorPlace } from "./dialog.js";
import { field, h, table } from "./dom.js";
import { bytes, percent, time } from "./format.js";
import { poll } from "./poll.js";

const POINTS = 240, ROWS = 60, INTERVAL_MS = 5000;

// At most POINTS samples: of each part the one with the most CPU, so that peaks stay.
function thin(samples) {
  const step = Math.ceil(samples.length / POINTS);
  if (step < 2)
    return samples;
  const found = [];
  for (let at = 0; at < samples.length; at += step)
    found.push(samples.slice(at, at + step).reduce((best, one) => (one.cpuUsedPct > best.cpuUsedPct ? one : best)));
  return found;
}

// Counters as rates per second
function rates(samples, name) {
  const found = [];
  for (let at = 1; at < samples.length; at++) {
    const seconds = samples[at].timestampUnix - samples[at - 1].timestampUnix;
    if (seconds > 0)
      found.push([samples[at].timestampUnix * 1000, Math.max(0, (samples[at][name] || 0) - (samples[at - 1][name] || 0)) / seconds]);
  }
  return found;
}

function points(samples, name) {
  return samples.map((one) => [one.timestampUnix * 1000, one[name] || 0]);
}

export function metricsTab(place, sandbox) {
  const cpu = new Chart({ title: "CPU", least: 10, text: percent });
  const memory = new Chart({ title: "Memory", base: 1024, least: 1 << 20, text: bytes });
  const disk = new Chart({ title: "Disk", base: 1024, least: 1 << 20, text: bytes });
  const network = new Chart({ title: "Network", base: 1024, least: 1024, text: (value) => `${bytes(value)}/s` });
  const period = h("select", { onchange: () => polling.now() }, h("option", { value: 300 }, "5 minutes"), h("option", { value: 3600 }, "1 hour"), h("option", { value: 86400 }, "1 day"));
  const problem = errorPlace(() => polling.now()), numbers = h("div");
  const details = h("details", { class: "card", ontoggle: () => showTable() }, h("summary", null, "The numbers as a table"), numbers);
  let last = [];

  function showTable() {
    if (!details.open)
      return;
    numbers.replaceChildren(table("Samples, newest first", ["Time", ...["CPU", "Memory", "Disk", "Sent", "Received", "Connections", "Refused"].map((text) => ({ text, class: "number" }))],
      last.slice(-ROWS).reverse().map((one) => h("tr", null, h("th", { scope: "row" }, time(one.timestampUnix * 1000)),
        [percent(one.cpuUsedPct), bytes(one.memUsed), bytes(one.diskUsed), bytes(one.networkUp), bytes(one.networkDown), String(one.networkConnections || 0), String(one.networkRefused || 0)]
          .map((text) => h("td", { class: "number" }, text))))));
  }

  async function load() {
    const end = Math.floor(Date.now() / 1000), start = end - Number(period.value);
    const all = await get(routeOf(sandbox.id, "metrics") + query({ start, end }), { signal: sandbox.signal });
    last = thin(all);
    const update = (chart, series) => chart.update(series, start * 1000, end * 1000);
    update(cpu, [{ name: "CPU", points: points(last, "cpuUsedPct") }]);
    update(memory, [{ name: "Memory", points: points(last, "memUsed") }]);
    update(disk, [{ name: "Disk", points: points(last, "diskUsed") }]);
    update(network, [{ name: "Sent", points: rates(last, "networkUp") }, { name: "Received", points: rates(last, "networkDown") }]);
    if (!numbers.contains(document.activeElement)) // a reader of the table is not disturbed
      showTable();
  }

  place.append(h("div", { class: "bar" }, field("Period", period)), problem.element, h("div", { class: "cards" }, cpu.element, memory.element, disk.element, network.element), details);
  const polling = poll(load, INTERVAL_MS, problem.show);
  return () => polling.stop();
}
