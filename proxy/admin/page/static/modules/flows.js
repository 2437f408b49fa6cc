// The picture of racks and flows: each rack is a band. Clients are on the left, this proxy in the middle, brokers and object
// storage on the right. An arrow that leaves its band crosses racks: dashed, in the warning colour, with its price.

import { h, s, setAttribute } from "./dom.js";
import { rate, usdPerMonth } from "./format.js";
import { legsOf, racksOf } from "./legs.js";

const NARROW = 620;
const WIDE = { name: 110, box: 150, bandHeight: 96, pad: 14, font: 6.6, top: 26, gap: 10 };
const PHONE = { name: 0, box: 74, bandHeight: 104, pad: 8, font: 5.9, top: 24, gap: 8 };
const LEAST_WIDTH = 2;
const MOST_WIDTH = 13;
const MAX_BANDS = 12;
const SHARES = [0.4, 0.5, 0.3, 0.6, 0.22, 0.7];
/** Parts of the way from the far end, where arrows have parted, to the proxy: where a label may be, best first. */
const SHIFTS = [0, -20, 20, -40, 40, -60, 60, -80, 80, -100, 100];
/** Pixels between two labels. */
const APART = 3;
/** Pixels that a label may be above or below its arrow. */

export class FlowPicture {
  constructor(place) {
    this.drawing = s("svg", { role: "img" });
    this.figure = h(
      "figure",
      { class: "flows" },
      h("figcaption", {}, ...key()),
      this.drawing,
    );
    this.note = h("p", { class: "quiet", hidden: true });
    place.append(this.figure, this.note);
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }

  update(overview, fleet) {
    this.overview = overview;
    this.fleet = fleet;
    this.draw();
  }

  draw() {
    const width = this.figure.clientWidth;
    if (!width || !this.overview) return;
    const own = this.overview.rack || "";
    const all = racksOf(this.overview, this.fleet);
    const legs = legsOf(this.overview.flows ?? [], own);
    const racks = shownRacks(all, own, legs);
    this.note.hidden = racks.length === all.length;
    this.note.textContent = `${all.length - racks.length} more racks with less traffic are in the table only.`;
    const layout = new Layout(width, racks, own);
    const arrows = arrowsOf(layout, legs.filter((leg) => racks.includes(leg.rack)));
    this.drawing.replaceChildren(...layout.bands(), ...arrows.map((arrow) => arrow.line), ...layout.boxes(this.overview, this.fleet, legs), ...arrows.map((arrow) => arrow.label));
    setAttribute(this.drawing, "viewBox", `0 0 ${width} ${layout.height}`);
    setAttribute(this.drawing, "height", layout.height);
    setAttribute(this.drawing, "aria-label", inWords(legs, own));
  }
}

/** Where everything is, for a width and these racks. */
class Layout {
  constructor(width, racks, own) {
    this.width = width;
    this.own = own;
    this.racks = racks;
    this.narrow = width < NARROW;
    this.size = this.narrow ? PHONE : WIDE;
    const { name, box, pad, top, bandHeight, gap } = this.size;
    this.top = top;
    this.height = top + racks.length * (bandHeight + gap);
    const left = name + pad;
    const right = width - pad - box;
    this.columns = { clients: left, proxy: left + (right - left) / 2, brokers: right };
  }

  bandTop(rack) {
    return this.top + this.racks.indexOf(rack) * (this.size.bandHeight + this.size.gap);
  }

  /** The middle of the boxes of a rack; on a phone the rack's name stands above them. */
  middle(rack) {
    return this.bandTop(rack) + this.size.bandHeight / 2 + (this.narrow ? 8 : 0);
  }

  bands() {
    const { box } = this.size;
    const names = [
      ["clients", "Clients"],
      ["proxy", this.narrow ? "Proxy" : "This proxy"],
      ["brokers", this.narrow ? "Brokers" : "Brokers, storage"],
    ].map(([column, text]) =>
      s("text", { class: "column-name", x: this.columns[column] + box / 2, y: 14, "text-anchor": "middle" }, text),
    );
    const bands = this.racks.flatMap((rack) => {
      const y = this.bandTop(rack);
      const own = rack === this.own;
      const name = this.narrow ? { x: 8, y: y + 15 } : { x: 12, y: this.middle(rack) + (own ? -4 : 4) };
      const text = cut(rack || "(no rack)", this.narrow ? 40 : 14);
      const parts = [
        s("rect", { class: own ? "band own" : "band", x: 0.5, y, width: this.width - 1, height: this.size.bandHeight, rx: 8 }),
        s("text", { class: "band-name", ...name }, s("title", {}, rack), this.narrow && own ? `${text} · this rack` : text),
      ];
      if (own && !this.narrow) parts.push(s("text", { class: "box-note", x: 12, y: this.middle(rack) + 13 }, "this rack"));
      return parts;
    });
    return [...names, ...bands];
  }

  boxes(overview, fleet, legs) {
    const parts = [];
    for (const rack of this.racks) {
      if (legs.some((leg) => leg.side === "clients" && leg.rack === rack)) parts.push(this.box("clients", rack, "clients", rack));
      const ids = (fleet?.brokers ?? []).filter((broker) => (broker.rack ?? "") === rack).map((broker) => broker.node_id);
      const storage = rack === this.own && legs.some((leg) => leg.side === "storage");
      const brokers = ids.length || legs.some((leg) => leg.side === "brokers" && leg.rack === rack);
      const named = ids.length ? `${ids.length > 1 ? "brokers" : "broker"} ${cut(ids.join(", "), 12)}` : "brokers";
      if (brokers) parts.push(this.box("brokers", rack, named, rack, storage ? "upper" : "whole"));
      if (storage) parts.push(this.box("brokers", rack, this.narrow ? "storage" : "object storage", "", brokers ? "lower" : "whole"));
    }
    const { box, font } = this.size;
    const name = overview.proxy && overview.proxy.length * font <= box - 10 ? overview.proxy : "proxy";
    parts.push(this.box("proxy", this.own, name, overview.proxy ?? "", "whole", "box proxy"));
    return parts.flat();
  }

  /** Where a box begins and how high it is: a rack with brokers and storage has two, one above the other. */
  span(rack, part) {
    const whole = this.size.bandHeight - (this.narrow ? 36 : 20);
    const middle = this.middle(rack);
    if (part === "whole") return { y: middle - whole / 2, height: whole };
    const height = (whole - 6) / 2;
    return { y: part === "upper" ? middle - whole / 2 : middle + 3, height };
  }

  box(column, rack, name, note, part = "whole", kind = "box") {
    const { box, font } = this.size;
    const { y, height } = this.span(rack, part);
    const x = this.columns[column];
    const letters = Math.floor((box - 10) / font);
    return [
      s("rect", { class: kind, x, y, width: box, height, rx: 6 }),
      s(
        "text",
        { class: "box-name", x: x + box / 2, y: y + height / 2 + 4, "text-anchor": "middle" },
        s("title", {}, [name, note].filter(Boolean).join(", ")),
        cut(name, letters),
      ),
    ];
  }
}

/** Arrows with their labels. Both directions of one way, and all ways at one box, are next to each other. */
function arrowsOf(layout, legs) {
  const largest = Math.max(1, ...legs.map((leg) => leg.rate));
  const hasStorage = legs.some((leg) => leg.side === "storage");
  const atProxy = { clients: [], brokers: [] };
  const inOrder = [...legs].sort((one, other) => layout.racks.indexOf(one.rack) - layout.racks.indexOf(other.rack) || storageLast(one) - storageLast(other) || one.direction.localeCompare(other.direction));
  for (const leg of inOrder) atProxy[leg.side === "clients" ? "clients" : "brokers"].push(leg);
  const proxy = layout.span(layout.own, "whole");
  const { box } = layout.size;
  const taken = [];
  return inOrder.map((leg) => {
    const left = leg.side === "clients";
    const column = left ? "clients" : "brokers";
    const part = left || leg.rack !== layout.own || !hasStorage ? "whole" : leg.side === "storage" ? "lower" : "upper";
    const hasBrokers = part !== "lower" || legs.some((other) => other.side === "brokers" && other.rack === layout.own);
    const far = layout.span(leg.rack, hasBrokers || part !== "lower" ? part : "lower");
    const mates = atProxy[column];
    const nearY = proxy.y + (proxy.height * (mates.indexOf(leg) + 1)) / (mates.length + 1);
    const pair = mates.filter((other) => other.rack === leg.rack && other.side === leg.side);
    const farY = far.y + (far.height * (pair.indexOf(leg) + 1)) / (pair.length + 1);
    const near = { x: layout.columns.proxy + (left ? 0 : box), y: nearY };
    const end = { x: layout.columns[column] + (left ? box : 0), y: farY };
    // A produce goes to the right, a fetch comes back.
    const toFar = left ? leg.direction === "fetch" : leg.direction === "produce";
    const [from, to] = toFar ? [near, end] : [end, near];
    return arrow(leg, from, to, LEAST_WIDTH + ((MOST_WIDTH - LEAST_WIDTH) * leg.rate) / largest, layout, toFar, taken);
  });
}

function storageLast(leg) {
  return Number(leg.side === "storage");
}

/** One arrow and its label, whose place is added to those that are `taken`. */
function arrow(leg, from, to, width, layout, toFar, taken) {
  const kind = leg.rate <= 0 ? "idle" : leg.crosses ? "crossing" : "";
  const forward = to.x > from.x ? 1 : -1;
  const head = Math.max(6, width * 0.9);
  const tip = to.x;
  const end = { x: tip - forward * head, y: to.y };
  const bend = (end.x - from.x) / 2;
  const path = `M${from.x},${from.y}C${from.x + bend},${from.y} ${end.x - bend},${end.y} ${end.x},${end.y}`;
  const half = Math.max(4.5, width * 0.8);
  const point = `M${tip},${to.y}L${end.x},${to.y - half}L${end.x},${to.y + half}Z`;
  const line = s(
    "g",
    {},
    s("title", {}, legInWords(leg, layout.own)),
    s("path", { class: `flow ${kind}`, d: path, "stroke-width": kind === "idle" ? null : width.toFixed(1) }),
    s("path", { class: `head ${kind}`, d: point }),
  );
  // Between the boxes of a phone there is room for the prices only; the table has the rest.
  if (!leg.crosses && layout.narrow) return { line, label: "" };
  const rows = labelRows(leg, layout);
  const size = { width: Math.max(...rows.map((row) => row.length)) * (layout.size.font - 0.4) + 12, height: rows.length * 13 + 4 };
  const place = freePlace((share) => onCurve(from, end, bend, toFar ? 1 - share : share), size, layout, taken);
  taken.push(place);
  return { line, label: label(leg, place, rows, kind, layout) };
}

/** Where a label covers no other one: on its arrow if there is room, else above or below it. */
function freePlace(pointAt, size, layout, taken) {
  const at = (share, shift) => {
    const { x, y } = pointAt(share);
    return { x: x - size.width / 2, y: y - size.height / 2 + shift, ...size };
  };
  const inside = ({ y, height }) => y >= 0 && y + height <= layout.height;
  const free = (place) => inside(place) && taken.every((other) => !overlap(place, other));
  for (const shift of SHIFTS) {
    const found = SHARES.map((share) => at(share, shift)).find(free);
    if (found) return found;
  }
  return at(SHARES[0], 0);
}

function overlap(one, other) {
  const apart = (from, length, otherFrom, otherLength) => from >= otherFrom + otherLength + APART || otherFrom >= from + length + APART;
  return !apart(one.x, one.width, other.x, other.width) && !apart(one.y, one.height, other.y, other.height);
}

/** The point of an arrow's curve at `t`, 0 at its start and 1 at its end. */
function onCurve(from, end, bend, t) {
  const weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t ** 2 * (1 - t), t ** 3];
  const sum = (values) => values.reduce((total, value, index) => total + value * weights[index], 0);
  return {
    x: sum([from.x, from.x + bend, end.x - bend, end.x]),
    y: sum([from.y, from.y, end.y, end.y]),
  };
}

function labelRows(leg, layout) {
  const lines = [rate(leg.rate)];
  if (leg.crosses) lines.push(usdPerMonth(leg.usdPerHour));
  return leg.crosses && layout.narrow ? lines : [lines.join(" · ")];
}

function label(leg, { x, y, width, height }, rows, kind, layout) {
  return s(
    "g",
    {},
    s("title", {}, legInWords(leg, layout.own)),
    s("rect", { class: `pill ${kind}`, x, y, width, height, rx: 8 }),
    ...rows.map((row, index) =>
      s("text", { class: `pill-text ${kind}`, x: x + width / 2, y: y + 12.5 + index * 13, "text-anchor": "middle" }, row),
    ),
  );
}

/** A leg in words: what moves, from where to where, how much, at which price. */
export function legInWords(leg, own) {
  const here = `this proxy in ${own || "no rack"}`;
  const there = leg.side === "storage" ? "object storage" : `${leg.side} in ${leg.rack || "no rack"}`;
  const inward = (leg.side === "clients") === (leg.direction === "produce");
  const ends = inward ? `${there} → ${here}` : `${here} → ${there}`;
  const price = leg.crosses ? `; crosses racks, ${usdPerMonth(leg.usdPerHour)} at this rate` : "; inside the rack";
  return `${ends} (${leg.direction}): ${rate(leg.rate)}${price}`;
}

function inWords(legs, own) {
  if (!legs.length) return "Racks and flows: no records have passed yet.";
  const crossing = legs.filter((leg) => leg.crosses);
  const start = crossing.length ? `${crossing.length} flows cross racks.` : "Nothing crosses racks.";
  return `Racks and flows. ${start} ${legs.slice(0, MAX_BANDS).map((leg) => legInWords(leg, own)).join(". ")}.`;
}

function shownRacks(all, own, legs) {
  if (all.length <= MAX_BANDS) return all;
  const traffic = new Map(all.map((rack) => [rack, rack === own ? Infinity : 0]));
  for (const leg of legs) traffic.set(leg.rack, traffic.get(leg.rack) + leg.rate);
  const busiest = new Set([...all].sort((one, other) => traffic.get(other) - traffic.get(one)).slice(0, MAX_BANDS));
  return all.filter((rack) => busiest.has(rack));
}

function key() {
  const sample = (kind) => s("svg", { viewBox: "0 0 34 10", "aria-hidden": "true" }, s("path", { class: `flow ${kind}`, d: "M0,5H34", "stroke-width": 4 }));
  return [
    h("span", {}, sample(""), "inside the rack"),
    h("span", {}, sample("crossing"), "crosses racks, and costs"),
    h("span", {}, sample("idle"), "nothing now"),
    h("span", {}, "The wider, the more bytes a second."),
  ];
}

function cut(text, letters) {
  return text.length <= letters ? text : `${text.slice(0, Math.max(1, letters - 1))}…`;
}
