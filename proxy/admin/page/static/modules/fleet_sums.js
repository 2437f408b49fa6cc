// The sum over the fleet: what all live proxies move, and what that costs. Each proxy reports its part by heartbeat.

import { byId, setPairs } from "./dom.js";
import { count, exact, rate, usdPerMonth } from "./format.js";

/** Show the sums of the fleet's document. */
export function showFleetSums(sums) {
  const crossing = sums.cross_rack_bytes_per_second > 0;
  setPairs(byId("fleet-tiles"), [
    {
      term: "Crossing racks",
      value: usdPerMonth(sums.cross_rack_usd_per_hour),
      note: crossing ? `⚠ ${rate(sums.cross_rack_bytes_per_second)} cross racks` : "nothing crosses now",
      title: exact(sums.cross_rack_usd_per_hour, "USD per hour"),
      kind: crossing ? "crossing" : "",
    },
    { term: "Saved", value: usdPerMonth(sums.saved_usd_per_hour), note: "against classic topics", title: exact(sums.saved_usd_per_hour, "USD per hour") },
    { term: "Object storage", value: usdPerMonth(sums.storage_usd_per_hour), note: "its requests", title: exact(sums.storage_usd_per_hour, "USD per hour") },
    { term: "Produced", value: rate(sums.produce_bytes_per_second), note: "by all clients", title: exact(sums.produce_bytes_per_second, "bytes/s") },
    { term: "Fetched", value: rate(sums.fetch_bytes_per_second), note: `${count(sums.connections)} connections`, title: exact(sums.fetch_bytes_per_second, "bytes/s") },
    proxies(sums),
  ]);
}

function proxies(sums) {
  const silent = (sums.processes ?? 0) - (sums.reporting ?? 0);
  const serving = `${count(sums.serving)} serving, racks: ${count(sums.racks)}`;
  return {
    term: "Live proxies",
    value: count(sums.proxies),
    note: silent > 0 ? `⚠ ${silent} of ${sums.processes} processes not in these sums yet` : serving,
    title: silent > 0 ? `${serving}. A process reports some seconds after its start; an older release reports nothing.` : null,
  };
}
