// SPDX-License-Identifier: Apache-2.0
// A line chart in SVG.  Its numbers are in a table, too.

import { h, setText, svg } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 640, HEIGHT = 180, LEFT = 70, RIGHT = 10, TOP = 12, BOTTOM = 24, STEPS = 4;

// A number at or above `most` that divides well: 1, 2 or 5 times a power of the base.
function roundUp(most, base) {
  if (most <= 0)
    return 1;
  if (base === 1024)
    return 2 ** Math.ceil(Math.log2(most));
  const unit = 10 ** Math.floor(Math.log10(most));
  return unit * [1, 2, 5, 10].find((one) => one * unit >= most);
}

// `series`: [{name, points: [[ms, value]...]}]; `text` makes a text of a value.
export class Chart {
  constructor({ title, base, least, text }) {
    Object.assign(this, { title, base: base || 10, least: least || 0, text });
    this.lines = svg("g");
    this.axis = svg("g", { class: "axis" });
    this.mark = svg("line", { class: "mark", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.picture = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", onpointermove: (event) => this.point(event), onpointerleave: () => this.leave(),
    }, this.axis, this.lines, this.mark);
    this.value = h("p", { class: "hint" });
    this.legend = h("p", { class: "legend" });
    this.element = h("section", { class: "card chart" }, h("h2", null, title), this.legend, this.picture, this.value);
  }

  x(ms) {
    return LEFT + (ms - this.from) / (this.to - this.from) * (WIDTH - LEFT - RIGHT);
  }

  y(value) {
    return HEIGHT - BOTTOM - value / this.most * (HEIGHT - TOP - BOTTOM);
  }

  update(series, from, to) {
    Object.assign(this, { series, from, to });
    const values = series.flatMap((one) => one.points.map(([, value]) => value));
    this.most = roundUp(Math.max(this.least, ...values, 0), this.base);
    this.drawAxis();
    this.lines.replaceChildren(...series.map((one, at) => svg("path", {
      class: `line line-${at}`, d: one.points.map(([ms, value], number) => `${number ? "L" : "M"}${this.x(ms).toFixed(1)} ${this.y(value).toFixed(1)}`).join(""),
    })));
    if (series.length > 1 && !this.legend.firstChild)
      this.legend.append(...series.map((one, at) => h("span", { class: `key key-${at}` }, one.name)));
    const said = series.map((one) => {
      const all = one.points.map(([, value]) => value);
      return all.length ? `${one.name}: now ${this.text(all.at(-1))}, at most ${this.text(Math.max(...all))}` : `${one.name}: no samples`;
    }).join("; ");
    this.picture.setAttribute("aria-label", `${this.title}. ${said}`);
    this.said = said;
    if (this.mark.getAttribute("visibility") === "hidden")
      setText(this.value, said);
  }

  drawAxis() {
    const parts = [];
    for (let step = 0; step <= STEPS; step++) {
      const value = this.most * step / STEPS, y = this.y(value);
      parts.push(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }), svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, this.text(value)));
    }
    for (let step = 0; step <= STEPS; step++) {
      const ms = this.from + (this.to - this.from) * step / STEPS;
      parts.push(svg("text", { x: this.x(ms), y: HEIGHT - 6, "text-anchor": step === 0 ? "start" : step === STEPS ? "end" : "middle" }, clock(ms)));
    }
    this.axis.replaceChildren(...parts);
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const ms = this.from + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (this.to - this.from);
    const texts = [];
    let at = null;
    for (const { name, points } of this.series || []) {
      const near = points.reduce((best, one) => (!best || Math.abs(one[0] - ms) < Math.abs(best[0] - ms) ? one : best), null);
      if (near) {
        at = near[0];
        texts.push(`${name} ${this.text(near[1])}`);
      }
    }
    if (at === null)
      return;
    this.mark.setAttribute("x1", this.x(at));
    this.mark.setAttribute("x2", this.x(at));
    this.mark.setAttribute("visibility", "visible");
    setText(this.value, `${new Date(at).toLocaleTimeString()}: ${texts.join(", ")}`);
  }

  leave() {
    this.mark.setAttribute("visibility", "hidden");
    setText(this.value, this.said || "");
  }
}
