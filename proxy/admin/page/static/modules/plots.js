// Which plots there are.

import { count, milliseconds, percent, perSecond, rate, usd, HOURS_PER_MONTH } from "./format.js";
import { Plot } from "./plot.js";

const PLOTS = [
  {
    name: "Throughput",
    format: rate,
    least: 1000,
    wide: true,
    series: [
      { name: "produce", key: "produce_bytes_per_second" },
      { name: "fetch", key: "fetch_bytes_per_second" },
    ],
  },
  {
    name: "Latency of produce",
    format: milliseconds,
    least: 1,
    series: [
      { name: "p50", key: "produce_p50_ms" },
      { name: "p99", key: "produce_p99_ms" },
    ],
  },
  {
    name: "Latency of fetch",
    note: "A Fetch waits for new records, as long as its client allows.",
    format: milliseconds,
    least: 1,
    series: [
      { name: "p50", key: "fetch_p50_ms" },
      { name: "p99", key: "fetch_p99_ms" },
    ],
  },
  {
    name: "Latency of upload and commit",
    format: milliseconds,
    least: 1,
    series: [
      { name: "upload p99", key: "upload_p99_ms" },
      { name: "commit p99", key: "commit_p99_ms" },
    ],
  },
  {
    name: "Uploads of segments",
    note: "Segments that end before the commit interval stay within the budget. Full segments may exceed it.",
    format: perSecond,
    least: 1,
    series: [
      { name: "uploads", key: "uploads_per_second" },
      { name: "budget", key: "upload_budget_per_second" },
    ],
  },
  {
    name: "Bytes between racks",
    format: rate,
    least: 1000,
    series: [{ name: "crossing", key: "cross_rack_bytes_per_second" }],
  },
  {
    name: "Dollars a month at this rate",
    format: usd,
    times: HOURS_PER_MONTH,
    series: [
      { name: "crossings cost", key: "cross_rack_usd_per_hour" },
      { name: "saved", key: "saved_usd_per_hour" },
    ],
  },
  { name: "Requests", format: perSecond, least: 1, series: [{ name: "requests", key: "requests_per_second" }] },
  { name: "Errors answered", format: perSecond, least: 1, series: [{ name: "errors", key: "errors_per_second" }] },
  { name: "Cache hits", format: percent, top: 1, series: [{ name: "hits", key: "cache_hit_ratio" }] },
  { name: "Event loop lag", format: milliseconds, least: 1, series: [{ name: "lag p99", key: "loop_lag_p99_ms" }] },
  { name: "Connections", format: count, least: 3, series: [{ name: "open", key: "connections" }] },
];

/** All plots, in `place`. */
export function makePlots(place) {
  return PLOTS.map((plot) => new Plot(place, plot));
}
