// What a load asks of a fleet and its store: the formulas of benchmarks/fleet_model.py, for docs/scale.md.
// A test holds the two together. Nothing is fetched, and nothing leaves the page.
"use strict";

const MEGABYTES = 1e6, NEIGHBOURS = 16, RUNS_PER_CALL = 100;

const LOAD = {
  produced_mb_per_second: 20, batch_bytes: 16384, partitions: 100, proxies: 6, racks: 3, puts_per_second: 4,
  buffer_bytes: 4 * 1024 * 1024, shards: 16, servers: 1, retention_hours: 72,
};
const UNITS = {
  call_us: 99.2, run_us: 5.75, announcement_bytes: 76, announced_run_bytes: 93, taken_run_us: 3.86,
  beat_us: 4.49, beat_bytes: 438, heard_beat_us: 16.85, collected_us: 15.88,
};
const LIMITS = {
  store_core: 0.5, proxy_core: 0.2, server_mb_per_second: 600, sweep_seconds: 3600, listed_per_second: 10000,
};

// How many different ones of so many kinds are expected in random draws.
function different(kinds, draws) {
  return kinds <= 1 ? Math.min(1, draws) : -kinds * Math.expm1(draws * Math.log1p(-1 / kinds));
}

function flow(load) {
  const perProxy = load.produced_mb_per_second * MEGABYTES / load.proxies, batches = perProxy / load.batch_bytes;
  const segments = Math.max(perProxy / load.buffer_bytes, Math.min(load.puts_per_second, batches));
  if (segments <= 0) return {segments: 0, runs: 0, calls: 0};
  const runs = different(load.partitions, batches / segments);
  const groups = Math.min(load.shards, Math.ceil(load.partitions / NEIGHBOURS));
  const calls = Math.max(different(groups, runs), runs / RUNS_PER_CALL);
  return {segments: load.proxies * segments, runs: load.proxies * segments * runs, calls: load.proxies * segments * calls};
}

// All limits, the one that comes first at the beginning: [name, used, allowed, unit].
function walls(load, units, limits, grouped = false) {
  const {segments, runs, calls: asItIs} = flow(load);
  const calls = grouped ? Math.max(segments, runs / RUNS_PER_CALL) : asItIs;
  const listeners = grouped ? load.racks : load.proxies;
  const announced = listeners * (calls * units.announcement_bytes + runs * units.announced_run_bytes);
  const beats = grouped ? load.proxies : load.proxies ** 2;
  const collecting = segments * (grouped ? 1 : load.shards) * units.collected_us / 1e6;
  const cores = limits.store_core * load.servers;
  return [
    ["order of batches", (calls * units.call_us + runs * units.run_us) / 1e6, cores, "cores of the store"],
    ["announcements, network", announced / MEGABYTES, load.servers * limits.server_mb_per_second, "MB/s"],
    ["announcements, each process", runs * listeners / load.proxies * units.taken_run_us / 1e6, limits.proxy_core, "of a core"],
    ["deletion of segments", collecting, cores, "cores of the store"],
    ["heartbeats, store", beats * units.beat_us / 1e6, limits.store_core, "cores of one server"],
    ["heartbeats, network", beats * units.beat_bytes / MEGABYTES, limits.server_mb_per_second, "MB/s"],
    ["heartbeats, each process", beats / load.proxies * units.heard_beat_us / 1e6, limits.proxy_core, "of a core"],
    ["sweep for orphans", segments * load.retention_hours * 3600 / limits.listed_per_second, limits.sweep_seconds, "s"],
  ].sort((one, other) => other[1] / other[2] - one[1] / one[2]);
}

const SCALE_LABELS = {
  produced_mb_per_second: "Produced, MB/s", batch_bytes: "A batch, bytes", partitions: "Partitions that are written to",
  proxies: "Proxy processes, in all racks", racks: "Racks", puts_per_second: "PUTs per second of each process, budget",
  buffer_bytes: "Buffer, bytes", shards: "redis.shards", servers: "Servers of the store", retention_hours: "Retention, hours",
  store_core: "Part of a server's core", proxy_core: "Part of a proxy's core", server_mb_per_second: "Network of a server, MB/s",
  sweep_seconds: "A sweep for orphans, seconds", listed_per_second: "Objects listed a second",
};

function buildScale(place) {
  const number = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});
  const percent = new Intl.NumberFormat("en", {style: "percent", maximumFractionDigits: 0});
  const least = Object.fromEntries(["batch_bytes", "partitions", "proxies", "racks", "buffer_bytes", "shards", "servers"].map((name) => [name, 1]));
  buildCalculator(place, {
    groups: [["Load", LOAD], ["What a plan may use", LIMITS]],
    labels: SCALE_LABELS,
    limits: {...least, puts_per_second: 0.01, store_core: 0.01, proxy_core: 0.01, server_mb_per_second: 1, sweep_seconds: 1, listed_per_second: 1},
    whole: ["partitions", "proxies", "racks", "shards", "servers"],
    heads: ["limit", "used", "allowed", "share"],
    label: "Limits, the first one first",
    rows: (load, limits) => walls(load, UNITS, limits).map(([name, used, allowed, unit]) => [
      used > allowed ? "sum" : "", [name, `${number.format(used)} ${unit}`, number.format(allowed), percent.format(used / allowed)]]),
  });
}

if (typeof module !== "undefined") {
  module.exports = {flow, walls, LOAD, UNITS, LIMITS};
} else {
  const place = document.getElementById("scale-calculator");
  if (place) buildScale(place);
}
