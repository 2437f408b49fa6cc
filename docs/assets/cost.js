// What a topic costs in a month, classic and diskless: the formulas of proxy/accounting/cost.py, for docs/cost.md.
// A test holds the two together. Nothing is fetched, and nothing leaves the page.
"use strict";

const GIGABYTE = 1e9, MEGABYTE = 1e6, MONTH_SECONDS = 730 * 3600, HOUR_SECONDS = 3600;

const USAGE = {
  produced_mb_per_second: 20, readers: 2, racks: 3, replication_factor: 3, retention_hours: 72,
  follower_fetching: false, disk_used_share: 0.5, proxies: 6, puts_per_second: 4,
  buffer_bytes: 4 * 1024 * 1024, coordination_share: 0.01, proxy_usd_per_month: 60, redis_usd_per_month: 160,
};
const PRICES = {
  cross_rack_usd_per_gb: 0.02, put_usd_per_thousand: 0.005, get_usd_per_thousand: 0.0004,
  object_usd_per_gb_month: 0.023, disk_usd_per_gb_month: 0.08,
};

// Of a byte of a classic topic: how often it crosses racks, on average over leaders.
function crossings(racks, replicationFactor) {
  const away = (racks - 1) / racks;
  const each = Math.floor(replicationFactor / racks), more = replicationFactor % racks;
  const beside = (racks - more) * each ** 2 + more * (each + 1) ** 2;
  return {produce: away, replication: replicationFactor - beside / replicationFactor, fetch: away};
}

function segmentsPerSecond(usage) {
  const bySize = usage.produced_mb_per_second * MEGABYTE / usage.buffer_bytes;
  const byTime = usage.proxies * usage.puts_per_second;
  return usage.produced_mb_per_second > 0 ? Math.max(bySize, byTime) : 0;
}

function monthlyCost(usage, prices) {
  const produced = usage.produced_mb_per_second * MEGABYTE * MONTH_SECONDS / GIGABYTE;
  const kept = usage.produced_mb_per_second * MEGABYTE * usage.retention_hours * HOUR_SECONDS / GIGABYTE;
  const crossing = prices.cross_rack_usd_per_gb;
  const each = crossings(usage.racks, usage.replication_factor);
  const segments = segmentsPerSecond(usage) * MONTH_SECONDS;
  const lines = {
    classic_produce: produced * each.produce * crossing,
    classic_replication: produced * each.replication * crossing,
    classic_fetch: produced * usage.readers * (usage.follower_fetching ? 0 : each.fetch) * crossing,
    classic_disks: kept * usage.replication_factor / usage.disk_used_share * prices.disk_usd_per_gb_month,
    diskless_put: segments * prices.put_usd_per_thousand / 1000,
    diskless_get: segments * (usage.racks - 1) * prices.get_usd_per_thousand / 1000,
    diskless_storage: kept * prices.object_usd_per_gb_month,
    diskless_coordination: produced * usage.coordination_share * crossing,
    diskless_proxies: usage.proxies * usage.proxy_usd_per_month,
    diskless_redis: usage.redis_usd_per_month,
  };
  const total = (kind) => Object.entries(lines)
    .filter(([name]) => name.startsWith(kind)).reduce((sum, [, usd]) => sum + usd, 0);
  const classic = total("classic_"), diskless = total("diskless_");
  return {...lines, classic_total: classic, diskless_total: diskless, saved: classic - diskless};
}

const LABELS = {
  produced_mb_per_second: "Produced, MB/s", readers: "Times each record is read", racks: "Racks",
  replication_factor: "Replication factor (classic)", retention_hours: "Retention, hours",
  follower_fetching: "Classic consumers read in their rack (KIP-392)", disk_used_share: "Part of the disks that is full",
  proxies: "Proxies, in all racks", puts_per_second: "PUTs per second of each proxy, budget", buffer_bytes: "Buffer, bytes",
  coordination_share: "Traffic with Redis, part of what is produced",
  proxy_usd_per_month: "Machine of one proxy, USD a month", redis_usd_per_month: "Machines for Redis, USD a month",
  cross_rack_usd_per_gb: "A GB between racks, USD", put_usd_per_thousand: "1,000 PUTs, USD",
  get_usd_per_thousand: "1,000 GETs, USD", object_usd_per_gb_month: "A GB in object storage, USD a month",
  disk_usd_per_gb_month: "A GB of disk, USD a month",
  classic_produce: "Classic: produced to leaders of other racks", classic_replication: "Classic: replicated to other racks",
  classic_fetch: "Classic: fetched from other racks", classic_disks: "Classic: disks", classic_total: "Classic, in all",
  diskless_put: "Diskless: PUTs", diskless_get: "Diskless: GETs", diskless_storage: "Diskless: object storage",
  diskless_coordination: "Diskless: traffic with Redis, at most", diskless_proxies: "Diskless: machines for the proxies",
  diskless_redis: "Diskless: machines for Redis",
  diskless_total: "Diskless, in all", saved: "Saved a month",
};

function build(place) {
  const usd = new Intl.NumberFormat("en", {style: "currency", currency: "USD", maximumFractionDigits: 0});
  buildCalculator(place, {
    groups: [["Usage", USAGE], ["Prices", PRICES]],
    labels: LABELS,
    limits: {racks: 1, replication_factor: 1, proxies: 1, buffer_bytes: 1, disk_used_share: 0.01, puts_per_second: 0.01},
    whole: ["racks", "replication_factor"],
    label: "US dollars a month",
    rows: (usage, prices) => Object.entries(monthlyCost(usage, prices)).map(
      ([name, value]) => [/total|saved/.test(name) ? "sum" : "", [LABELS[name], usd.format(value)]]),
  });
}

if (typeof module !== "undefined") {
  module.exports = {monthlyCost, USAGE, PRICES};
} else {
  const place = document.getElementById("cost-calculator");
  if (place) build(place);
}
