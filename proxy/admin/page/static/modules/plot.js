// A line plot of the last ten minutes, drawn by hand: a figure with a summary in words, values under the pointer or the
// arrow keys, and a table on demand.

import { h, s, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 128;
const MARGIN = { top: 8, right: 8, bottom: 18, left: 66 };
const GRID_LINES = 2;
const SPAN_MS = 600_000;
const TABLE_EVERY = 5;

/**
 * @typedef {{name: string, key: string}} Series
 */

export class Plot {
  /**
   * @param {HTMLElement} place
   * @param {{name: string, note?: string, series: Series[], format: function, times?: number, top?: number,
   *   least?: number, wide?: boolean}} options values are multiplied by `times`; `top` is a fixed end of the scale,
   *   `least` the smallest one
   */
  constructor(place, options) {
    this.options = options;
    this.samples = [];
    this.pointed = null;
    this.legend = h("ul", { class: "legend" }, ...options.series.map((series, tone) => legendEntry(series, tone)));
    this.at = h("span", { class: "at" });
    this.drawing = s("svg", { role: "img", "aria-label": options.name });
    this.slider = h("input", {
      type: "range",
      min: "0",
      max: "0",
      value: "0",
      "aria-label": `${options.name}: time`,
      oninput: () => this.point(Number(this.slider.value)),
      onfocus: () => this.point(this.pointed ?? this.samples.length - 1),
      onblur: () => this.point(null),
    });
    this.frame = h(
      "div",
      {
        class: "plot-frame",
        onpointermove: (event) => this.point(this.nearest(event)),
        onpointerleave: () => this.point(document.activeElement === this.slider ? Number(this.slider.value) : null),
      },
      this.drawing,
      this.slider,
    );
    this.details = h("details", { ontoggle: () => this.fillTable() }, h("summary", {}, "As a table"));
    place.append(
      h("figure", { class: options.wide ? "plot wide" : "plot" }, h("figcaption", {}, h("h3", { title: options.note ?? null }, options.name), this.at), this.legend, this.frame, this.details),
    );
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  /** Show these samples, oldest first. */
  update(samples) {
    const held = this.pointed === null ? null : this.samples[this.pointed]?.time_ms;
    this.samples = samples;
    if (held !== null && held !== undefined) {
      const now = samples.findIndex((sample) => sample.time_ms >= held);
      this.pointed = now < 0 ? null : now;
    }
    this.slider.max = String(Math.max(0, samples.length - 1));
    if (this.pointed === null) this.slider.value = this.slider.max;
    this.draw();
    this.fillTable();
  }

  point(index) {
    this.pointed = index === null || index < 0 || !this.samples.length ? null : index;
    if (this.pointed !== null) this.slider.value = String(this.pointed);
    this.draw();
  }

  nearest(event) {
    const { left } = this.frame.getBoundingClientRect();
    const distance = (sample) => Math.abs(this.across(sample.time_ms) - (event.clientX - left));
    return this.samples.reduce((best, sample, index) => (distance(sample) < distance(this.samples[best]) ? index : best), 0);
  }

  /** The value of a sample as it is drawn; null if it is not known. */
  value(sample, key) {
    const value = sample?.[key] ?? null;
    return value === null ? null : value * (this.options.times ?? 1);
  }

  across(time) {
    const end = this.samples.at(-1)?.time_ms ?? 0;
    const width = this.width - MARGIN.left - MARGIN.right;
    return MARGIN.left + width * (1 - (end - time) / SPAN_MS);
  }

  down(value) {
    const height = HEIGHT - MARGIN.top - MARGIN.bottom;
    return MARGIN.top + height * (1 - value / this.scaleTop);
  }

  draw() {
    this.width = this.frame.clientWidth;
    if (!this.width) return;
    const { series, format, name, top, least = 0 } = this.options;
    const values = this.samples.flatMap((sample) => series.map(({ key }) => this.value(sample, key) ?? 0));
    this.scaleTop = top ?? rounded(Math.max(least, ...values)) ?? 1;
    setAttribute(this.drawing, "viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.drawing.replaceChildren(...this.grid(format), ...series.flatMap(({ key }, tone) => this.line(key, tone)), ...this.cursor());
    setAttribute(this.drawing, "aria-label", `${name}, last ten minutes. ${this.summary()}`);
    this.showValues();
  }

  grid(format) {
    const parts = [];
    for (let line = 0; line <= GRID_LINES; line += 1) {
      const value = (this.scaleTop * line) / GRID_LINES;
      const y = this.down(value);
      parts.push(s("line", { class: "grid-line", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y, y2: y }));
      parts.push(s("text", { class: "axis", x: MARGIN.left - 6, y: y + 3.5, "text-anchor": "end" }, format(value)));
    }
    const base = HEIGHT - 5;
    parts.push(
      s("text", { class: "axis", x: MARGIN.left, y: base }, "−10 min"),
      s("text", { class: "axis", x: (MARGIN.left + this.width - MARGIN.right) / 2, y: base, "text-anchor": "middle" }, "−5 min"),
      s("text", { class: "axis", x: this.width - MARGIN.right, y: base, "text-anchor": "end" }, "now"),
    );
    return parts;
  }

  line(key, tone) {
    const runs = [];
    let run = null;
    for (const sample of this.samples) {
      const value = this.value(sample, key);
      if (value === null) run = null;
      else {
        if (!run) runs.push((run = []));
        run.push(`${this.across(sample.time_ms).toFixed(1)},${this.down(Math.min(value, this.scaleTop)).toFixed(1)}`);
      }
    }
    return runs.map((points) => {
      // A lone value has no length: it is drawn as a short stroke.
      const path = points.length > 1 ? `M${points.join("L")}` : `M${points[0]}h2`;
      return s("path", { class: `series tone-${tone}`, d: path });
    });
  }

  cursor() {
    const sample = this.samples[this.pointed ?? -1];
    if (!sample) return [];
    const x = this.across(sample.time_ms);
    const dots = this.options.series
      .map(({ key }, tone) => ({ value: this.value(sample, key), tone }))
      .filter(({ value }) => value !== null)
      .map(({ value, tone }) => s("circle", { class: `dot tone-${tone}`, cx: x, cy: this.down(value), r: 3.5 }));
    return [s("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }), ...dots];
  }

  showValues() {
    const sample = this.samples[this.pointed ?? this.samples.length - 1];
    const { series, format } = this.options;
    const texts = series.map(({ key }) => format(this.value(sample, key)));
    texts.forEach((text, index) => setText(this.legend.children[index].lastElementChild, text));
    setText(this.at, this.pointed === null ? "now" : clock(sample.time_ms));
    const spoken = series.map(({ name }, index) => `${name} ${texts[index]}`).join(", ");
    setAttribute(this.slider, "aria-valuetext", sample ? `${clock(sample.time_ms)}: ${spoken}` : "no values yet");
  }

  summary() {
    const { series, format } = this.options;
    const parts = series.map(({ name, key }) => {
      const values = this.samples.map((sample) => sample[key]).filter((value) => value !== null && value !== undefined);
      if (!values.length) return `${name}: no values yet`;
      return `${name}: now ${format(this.samples.at(-1)[key] ?? null)}, lowest ${format(Math.min(...values))}, highest ${format(Math.max(...values))}`;
    });
    return `${parts.join("; ")}.`;
  }

  fillTable() {
    if (!this.details.open) return;
    const { series, format, name } = this.options;
    if (!this.tableBody) {
      this.tableBody = h("tbody");
      const headings = series.map((one) => h("th", { scope: "col", class: "of-numbers" }, one.name));
      const head = h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "time"), ...headings));
      const table = h("table", {}, h("caption", { class: "hidden-text" }, name), head, this.tableBody);
      const frame = { class: "table-frame", role: "region", "aria-label": `${name}, values`, tabindex: "0" };
      this.details.append(h("div", frame, table));
    }
    const rows = this.samples
      .filter((_, index) => (this.samples.length - 1 - index) % TABLE_EVERY === 0)
      .reverse()
      .map((sample) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, clock(sample.time_ms)),
          ...series.map(({ key }) => h("td", { class: "of-numbers", title: this.value(sample, key) ?? "not known" }, format(this.value(sample, key)))),
        ),
      );
    this.tableBody.replaceChildren(...rows);
  }
}

function legendEntry(series, tone) {
  const swatch = s("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" }, s("path", { class: `series tone-${tone}`, d: "M0,4H20" }));
  return h("li", {}, swatch, h("span", {}, series.name), h("span", { class: "value" }));
}

/** The next larger 1, 2, 3, 5 times a power of ten; null for 0. */
function rounded(value) {
  if (!(value > 0)) return null;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((step) => step * power).find((step) => step >= value) ?? 10 * power;
}
