// The columns of all tables.

import { byId } from "./dom.js";
import { bytes, clock, count, duration, exact, milliseconds, moment, rate, usd, usdPerMonth } from "./format.js";
import { Table } from "./table.js";

const MOST_ROWS = 1000;

const bytesColumn = (name, key, options = {}) => ({
  name,
  text: (row) => bytes(row[key]),
  exact: (row) => exact(row[key], "bytes"),
  order: (row) => row[key],
  numeric: true,
  ...options,
});

const crossedColumn = bytesColumn("crossed racks", "crossed_bytes", {
  text: (row) => (row.crossed_bytes ? `⚠ ${bytes(row.crossed_bytes)}` : bytes(row.crossed_bytes)),
});

/** Record bytes a second that a proxy moves; null if it does not report them. */
const moved = (sums) => (sums?.produce_bytes_per_second === undefined || sums.produce_bytes_per_second === null ? null : sums.produce_bytes_per_second + sums.fetch_bytes_per_second);

const named = (name, key) => ({ name, text: (row) => row[key] ?? "–", kind: "name" });

/** All tables, by what they show. `changed(resource, question)` is called when a filter or a limit changes. */
export function makeTables(changed) {
  const filter = (resource, label) => ({ label, more: MOST_ROWS, changed: (question) => changed(resource, question) });
  return {
    flows: new Table(byId("flow-table"), {
      name: "Flows",
      heading: true,
      empty: "No records have passed yet.",
      marked: (row) => row.crosses,
      columns: [
        { name: "topics", text: (row) => row.kind },
        { name: "direction", text: (row) => row.direction },
        { name: "client’s rack", text: (row) => row.client_rack || "not known" },
        { name: "served from", text: (row) => row.serving_rack || "not known" },
        { name: "crosses", text: (row) => (row.crosses ? "crosses" : "no"), tag: (row) => (row.crosses ? "warn" : "calm") },
        { name: "now", text: (row) => rate(row.bytes_per_second), exact: (row) => exact(row.bytes_per_second, "bytes/s"), order: (row) => row.bytes_per_second, numeric: true },
        bytesColumn("so far", "bytes"),
        { name: "USD a month", text: (row) => usdPerMonth(row.usd_per_hour), exact: (row) => exact(row.usd_per_hour, "USD per hour"), order: (row) => row.usd_per_hour, numeric: true },
        { name: "USD so far", text: (row) => usd(row.cost_usd), exact: (row) => exact(row.cost_usd, "USD"), order: (row) => row.cost_usd, numeric: true },
      ],
    }),
    proxies: new Table(byId("proxies"), {
      name: "Proxies",
      heading: true,
      empty: "No proxy is known: the fleet has not been read yet.",
      columns: [
        { name: "proxy", text: (row) => `${row.proxy}${row.this ? " (this one)" : ""}`, kind: "name", link: (row) => (row.admin ? `//${row.admin}/` : null) },
        { name: "rack", text: (row) => row.rack ?? "–" },
        { name: "address", text: (row) => row.address ?? "–" },
        { name: "serving", text: (row) => (row.serving ? "serving" : "not serving"), tag: (row) => (row.serving ? "good" : "warn") },
        { name: "records", text: (row) => rate(moved(row.sums)), exact: (row) => exact(moved(row.sums), "bytes/s"), order: (row) => moved(row.sums), numeric: true },
        { name: "crossing racks", text: (row) => usdPerMonth(row.sums?.cross_rack_usd_per_hour), exact: (row) => exact(row.sums?.cross_rack_usd_per_hour, "USD per hour"), order: (row) => row.sums?.cross_rack_usd_per_hour, numeric: true },
        { name: "version", text: (row) => row.version ?? "–" },
        { name: "heard of", text: (row) => (row.age_ms === null ? "–" : `${milliseconds(row.age_ms)} ago`), order: (row) => row.age_ms, numeric: true },
      ],
    }),
    brokers: new Table(byId("brokers"), {
      name: "Brokers",
      heading: true,
      empty: "No broker is known: none has answered yet.",
      columns: [
        { name: "broker", text: (row) => row.node_id },
        { name: "rack", text: (row) => row.rack || "no rack" },
        { name: "address", text: (row) => row.address ?? "–" },
      ],
    }),
    topics: new Table(byId("topic-table"), {
      name: "Topics",
      empty: "No topic: none is diskless, and no records have passed.",
      marked: (row) => row.crossed_bytes > 0,
      filter: filter("topics", "Filter by name"),
      columns: [
        named("topic", "name"),
        { name: "kind", text: (row) => (row.diskless ? "diskless" : "classic"), tag: (row) => (row.diskless ? "accent" : "plain") },
        { name: "partitions", text: (row) => count(row.partitions), order: (row) => row.partitions, numeric: true },
        bytesColumn("produced", "produced_bytes"),
        bytesColumn("fetched", "fetched_bytes"),
        crossedColumn,
        { name: "topic ID", text: (row) => row.topic_id ?? "–" },
      ],
    }),
    connections: new Table(byId("connection-table"), {
      name: "Connections",
      empty: "No client is connected.",
      marked: (row) => row.crossed_bytes > 0,
      filter: filter("connections", "Filter by client, rack, software, user"),
      columns: [
        named("client ID", "client_id"),
        { name: "address", text: (row) => row.client },
        { name: "rack", text: (row) => row.rack || "–" },
        { name: "rack from", text: (row) => row.rack_from ?? "–" },
        { name: "listener", text: (row) => row.listener ?? "–" },
        { name: "software", text: (row) => row.software ?? "–" },
        { name: "user", text: (row) => row.principal ?? "–" },
        crossedColumn,
        bytesColumn("received", "received_bytes"),
        bytesColumn("sent", "sent_bytes"),
        { name: "requests", text: (row) => count(row.requests), order: (row) => row.requests, numeric: true },
        { name: "open for", text: (row) => duration(Date.now() - row.opened_ms), exact: (row) => `since ${moment(row.opened_ms)}`, order: (row) => -row.opened_ms, numeric: true },
        { name: "worker", text: (row) => row.worker ?? "–", numeric: true },
      ],
    }),
    segments: new Table(byId("segment-table"), {
      name: "WAL segments",
      empty: "This proxy has uploaded no segment yet.",
      columns: [
        named("object", "object"),
        { name: "uploaded", text: (row) => clock(row.uploaded_ms), exact: (row) => moment(row.uploaded_ms), order: (row) => row.uploaded_ms },
        bytesColumn("size", "bytes"),
        { name: "batches", text: (row) => count(row.batches), order: (row) => row.batches, numeric: true },
        { name: "partitions", text: (row) => count(row.partitions), order: (row) => row.partitions, numeric: true },
        { name: "upload", text: (row) => milliseconds(row.upload_ms), order: (row) => row.upload_ms, numeric: true },
        { name: "commit", text: (row) => milliseconds(row.commit_ms), order: (row) => row.commit_ms, numeric: true },
      ],
    }),
  };
}
