// The state of the proxy: the badge, facts, figures at a glance, and whether it answers at all.

import { announce, byId, setAttribute, setPairs, setText } from "./dom.js";
import { clock, duration, exact, milliseconds, moment, percent, perSecond, rate, usd, usdPerMonth } from "./format.js";
import { crossings } from "./legs.js";

const STATES = { ready: "ready", not_ready: "not ready", draining: "draining" };

/** Show what the overview says. */
export function showState(overview, history) {
  const state = STATES[overview.state] ?? overview.state;
  const shown = overview.state === "ready" && overview.remark ? "ready, with a remark" : state;
  showBadge(shown, overview.state, `is ${shown}`);
  setText(byId("proxy-name"), overview.proxy ?? "");
  document.title = `${overview.proxy ?? "proxy"}: ${state} – diskless-proxy`;
  const reason = byId("reason");
  const text = overview.reason ? `Not all clients are served: ${overview.reason}` : overview.remark ? `Clients are served, but ${overview.remark}` : "";
  reason.hidden = !text;
  setText(reason, text);
  setAttribute(reason, "class", overview.reason ? "notice" : "notice mild");
  setPairs(byId("facts"), [
    { term: "rack", value: overview.rack || "none" },
    { term: "version", value: overview.version ?? "–" },
    { term: "workers", value: overview.workers ?? "–" },
    { term: "up for", value: overview.started_ms ? duration(overview.now_ms - overview.started_ms) : "–", title: moment(overview.started_ms) },
    { term: "log level", value: overview.log_level ?? "–" },
  ]);
  setPairs(byId("tiles"), tiles(overview, history.samples?.at(-1) ?? {}));
}

function tiles(overview, now) {
  const crossing = crossings(overview.flows);
  const saved = Object.values(overview.savings ?? {}).reduce((sum, value) => sum + value, 0);
  return [
    {
      term: "Crossing racks",
      value: crossing.rate > 0 ? usdPerMonth(crossing.usdPerHour) : "$0/month",
      note: crossing.rate > 0 ? `⚠ ${rate(crossing.rate)} cross racks` : "nothing crosses now",
      title: exact(crossing.usdPerHour, "USD per hour"),
      kind: crossing.rate > 0 ? "crossing" : "",
    },
    { term: "Saved", value: usdPerMonth(now.saved_usd_per_hour), note: `${usd(saved)} so far`, title: exact(now.saved_usd_per_hour, "USD per hour") },
    { term: "Produced", value: rate(now.produce_bytes_per_second), note: `p99 ${milliseconds(now.produce_p99_ms)}`, title: exact(now.produce_bytes_per_second, "bytes/s") },
    { term: "Fetched", value: rate(now.fetch_bytes_per_second), note: `p99 ${milliseconds(now.fetch_p99_ms)}`, title: exact(now.fetch_bytes_per_second, "bytes/s") },
    { term: "Requests", value: perSecond(now.requests_per_second), note: `${now.connections ?? "–"} connections`, title: exact(now.requests_per_second, "requests/s") },
    { term: "Cache hits", value: percent(now.cache_hit_ratio), note: `loop lag p99 ${milliseconds(now.loop_lag_p99_ms)}` },
  ];
}

let shownState = null;

function showBadge(text, state, spoken) {
  const badge = byId("state");
  setText(badge, text);
  setAttribute(badge, "data-state", state);
  if (shownState !== null && shownState !== text) announce(`The proxy ${spoken}.`);
  shownState = text;
}

/** All is as of now. */
export function showFresh(time) {
  byId("stale").hidden = true;
  delete document.body.dataset.stale;
  setText(byId("updated"), `updated ${clock(time)}`);
}

/** The proxy does not answer: what is shown is old. `since` is the last answer's time, null where there was none. */
export function showStale(since, why) {
  const banner = byId("stale");
  const age = since === null ? "" : `, ${duration(Date.now() - since)} ago`;
  const what = since === null ? "No answer yet" : `Stale since ${clock(since)}${age}: what is shown is of then`;
  setText(banner, `${what}. Cause: ${why}. Trying again every 2 s.`);
  banner.hidden = false;
  document.body.dataset.stale = "true";
  showBadge("does not answer", "silent", "does not answer");
}
