// Money, errors and buffers.

import { byId, h, setAttribute, setPairs, setText } from "./dom.js";
import { bytes, clock, count, exact, moment, percent, usd, usdPerMonth } from "./format.js";
import { crossings } from "./legs.js";

const SAVINGS = {
  near_read: "classic reads from near replicas",
  diskless_produce: "diskless produces: no leader elsewhere",
  diskless_replication: "diskless topics: no replication",
  diskless_fetch: "diskless reads in the reader’s rack",
};
const FULL = 0.95;
const HIGH = 0.75;

/** Cost and savings. */
export function showMoney(overview, history) {
  const place = byId("money-body");
  if (!place.children.length) {
    for (const heading of ["Crossings cost", "Saved", "Object storage, not in the savings"]) {
      place.append(h("div", { class: "card" }, h("h3", {}, heading), h("p", { class: "sum" }), h("dl", { class: "ledger" })));
    }
  }
  const [cost, saved, storage] = place.children;
  const crossing = crossings(overview.flows);
  const savings = Object.entries(overview.savings ?? {});
  const sum = savings.reduce((total, [, value]) => total + value, 0);
  const stored = overview.storage_cost_usd ?? {};
  fill(cost, usdPerMonth(crossing.usdPerHour), exact(crossing.usdPerHour, "USD per hour"), [
    { term: "so far", value: usd(crossing.usd), title: exact(crossing.usd, "USD") },
    { term: "bytes that crossed so far", value: bytes(crossing.bytes), title: exact(crossing.bytes, "bytes") },
  ]);
  const savedPerHour = history.samples?.at(-1)?.saved_usd_per_hour ?? null;
  fill(saved, usdPerMonth(savedPerHour), exact(savedPerHour, "USD per hour"), [
    { term: "so far", value: usd(sum), title: exact(sum, "USD") },
    ...savings.map(([name, value]) => ({ term: SAVINGS[name] ?? name, value: usd(value), title: exact(value, "USD") })),
  ]);
  const requests = Object.values(stored).reduce((total, value) => total + value, 0);
  const requestsPerHour = history.samples?.at(-1)?.storage_usd_per_hour ?? null;
  fill(storage, usdPerMonth(requestsPerHour), exact(requestsPerHour, "USD per hour"), [
    { term: "so far", value: usd(requests), title: exact(requests, "USD") },
    ...Object.entries(stored).map(([name, value]) => ({ term: `${name.toUpperCase()} requests`, value: usd(value), title: exact(value, "USD") })),
    { term: overview.currency_note ?? "by the settings prices.*", value: "" },
  ]);
}

function fill(card, text, title, pairs) {
  setText(card.children[1], text);
  setAttribute(card.children[1], "title", title);
  setPairs(card.children[2], pairs);
}

/** Warnings and errors, newest first. */
export function showErrors(errors) {
  const place = byId("error-list");
  const badge = byId("error-count");
  badge.hidden = errors.length === 0;
  if (badge.textContent !== String(errors.length)) {
    badge.replaceChildren(String(errors.length), h("span", { class: "hidden-text" }, " recent"));
  }
  if (!errors.length) {
    place.replaceChildren(h("p", { class: "quiet" }, "Nothing was logged as a warning or an error since the start."));
    return;
  }
  let list = place.querySelector("ul");
  if (!list) {
    list = h("ul", { class: "mistakes" });
    place.replaceChildren(list);
  }
  while (list.children.length > errors.length) list.lastElementChild.remove();
  errors.forEach((error, index) => {
    const entry = list.children[index] ?? list.appendChild(newMistake());
    setAttribute(entry, "class", `mistake ${error.level === "warning" ? "warning" : "error"}`);
    const [head, text, remedy] = entry.children;
    const [level, event, time, times] = head.children;
    setText(level, error.level);
    setAttribute(level, "class", `tag ${error.level === "warning" ? "warn" : "bad"}`);
    setText(event, error.event ?? "");
    setText(time, clock(error.time_ms));
    setAttribute(time, "datetime", moment(error.time_ms));
    setAttribute(time, "title", moment(error.time_ms));
    setText(times, error.count > 1 ? `${count(error.count)} times, the last time then` : "");
    setText(text, error.text && error.text !== error.event ? error.text : "");
    setText(remedy, error.remedy ?? "");
    remedy.hidden = !error.remedy;
  });
}

function newMistake() {
  const head = h("p", { class: "head" }, h("span"), h("span", { class: "event" }), h("time"), h("span", { class: "times" }));
  return h("li", { class: "mistake" }, head, h("p"), h("p", { class: "remedy" }));
}

/** Buffers as meters. */
export function showBuffers(buffers) {
  const list = byId("buffer-list");
  while (list.children.length > buffers.length) list.lastElementChild.remove();
  buffers.forEach((buffer, index) => {
    const entry = list.children[index] ?? list.appendChild(newBuffer());
    const [line, meter, setting] = entry.children;
    const shown = buffer.unit === "bytes" ? bytes : count;
    const name = buffer.name.replaceAll("_", " ");
    const ratio = buffer.limit > 0 ? Math.min(1, (buffer.used ?? 0) / buffer.limit) : 0;
    // A cache is there to be full.
    const fullness = buffer.name.includes("cache") ? "low" : ratio >= FULL ? "full" : ratio >= HIGH ? "high" : "low";
    const word = { full: "⚠ full, ", high: "⚠ filling, ", low: "" }[fullness];
    const limit = buffer.limit ? shown(buffer.limit) : "no limit";
    setText(line.children[0], name);
    setText(line.children[1], `${word}${shown(buffer.used)} of ${limit}${buffer.unit === "bytes" ? "" : ` ${buffer.unit ?? ""}`}`);
    setAttribute(line.children[1], "title", `${exact(buffer.used, buffer.unit ?? "")} of ${exact(buffer.limit, buffer.unit ?? "")}`);
    setAttribute(meter, "data-full", fullness);
    setAttribute(meter, "aria-label", name);
    setAttribute(meter, "aria-valuenow", Math.round(ratio * 100));
    setAttribute(meter, "aria-valuetext", `${percent(ratio)} of ${limit}`);
    meter.firstElementChild.style.width = `${(ratio * 100).toFixed(1)}%`;
    setText(setting, buffer.setting ?? "");
  });
}

function newBuffer() {
  const meter = h("div", { class: "meter", role: "meter", "aria-valuemin": "0", "aria-valuemax": "100" }, h("div"));
  return h("li", {}, h("p", { class: "line" }, h("span"), h("span", { class: "number" })), meter, h("p", { class: "setting" }));
}
