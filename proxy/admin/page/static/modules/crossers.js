// Who crosses: the connections with the most crossed bytes, and a remedy for each.

import { h, setText } from "./dom.js";
import { bytes, exact } from "./format.js";

const SHOWN = 8;

/** The setting that the rack comes from, by its source: to be corrected if the client is in this rack after all. */
const WHERE_SAID = {
  "client ID": "the rack in its client.id",
  request: "its client.rack",
  "another connection": "the client.rack that this client says on another connection",
  network: "racks.by_network of this proxy",
  listener: "the rack of the listener that it came to",
  proxy: "the rack of this proxy",
};

/** Build or rebuild the list. */
export function showCrossers(place, connections, overview, fleet) {
  const crossing = connections.filter((one) => one.crossed_bytes > 0).slice(0, SHOWN);
  if (!crossing.length) {
    place.replaceChildren(h("p", { class: "quiet" }, "No open connection has moved records between racks."));
    return;
  }
  let list = place.querySelector("ul");
  if (!list) {
    list = h("ul", { class: "crossers" });
    place.replaceChildren(list);
  }
  while (list.children.length > crossing.length) list.lastElementChild.remove();
  crossing.forEach((connection, index) => {
    const entry = list.children[index] ?? list.appendChild(newEntry());
    const [who, crossed, source, remedy] = entry.children;
    setText(who, connection.client_id || `${connection.client}, without a client ID`);
    setText(crossed, `${bytes(connection.crossed_bytes)} crossed`);
    crossed.title = exact(connection.crossed_bytes, "bytes between racks");
    setText(source, sourceOf(connection));
    setText(remedy, remedyFor(connection, overview, fleet));
  });
}

function newEntry() {
  return h("li", { class: "crosser" }, h("p", { class: "who" }), h("p", { class: "crossed" }), h("p", { class: "source" }), h("p", { class: "remedy" }));
}

function sourceOf(connection) {
  const rack = connection.rack ? `in ${connection.rack}` : "in no known rack";
  const software = connection.software ? ` · ${connection.software}` : "";
  return `${rack} (from the ${connection.rack_from ?? "proxy"}) · ${connection.client} · ${connection.listener}${software}`;
}

/** One sentence that says what to set, and to what. */
export function remedyFor(connection, overview, fleet) {
  const own = overview.rack || "";
  const name = connection.client_id ? "It" : "This client";
  if (connection.rack && own && connection.rack !== own) {
    const near = (fleet?.proxies ?? []).filter((proxy) => proxy.rack === connection.rack && proxy.address);
    const said = WHERE_SAID[connection.rack_from] ?? "where its rack is said";
    const known = racksThatLive(fleet);
    if (known.length && !known.includes(connection.rack)) {
      return `${name} says ${connection.rack}, where neither a proxy nor a broker is: correct ${said}; there are ${known.join(", ")}.`;
    }
    const remedy = near.length
      ? `set its bootstrap.servers to the proxy of ${connection.rack}, ${near.slice(0, 2).map((proxy) => proxy.address).join(" or ")}`
      : `start a proxy in ${connection.rack}, and set its bootstrap.servers to that`;
    return `${name} is in ${connection.rack} and goes through ${own}: ${remedy}; or, if it does run in ${own}, correct ${said}.`;
  }
  const broker = brokerOf(connection, fleet);
  const there = broker?.rack ?? "";
  const where = there ? `broker ${broker.node_id} in ${there}` : "brokers of other racks";
  const here = own || "its rack";
  const correct = WHERE_SAID[connection.rack_from] ?? WHERE_SAID.proxy;
  const otherwise = connection.rack_from === "proxy" || !there ? "" : `; or, if it does run in ${there}, correct ${correct}`;
  if ((connection.received_bytes ?? 0) > (connection.sent_bytes ?? 0)) {
    return `${name} produces classic records to ${where}, their leader: make the topic diskless, or move its leaders to ${here}${otherwise}.`;
  }
  return `${name} reads classic records from ${where}: give the topic a replica in ${here} and leave near reads on (fetch.read_near_replicas, fetch.leader_read_topics)${otherwise}.`;
}

function racksThatLive(fleet) {
  const racks = [...(fleet?.proxies ?? []), ...(fleet?.brokers ?? [])].map((one) => one.rack).filter(Boolean);
  return [...new Set(racks)].sort();
}

/** The broker that a connection's listener stands for; null for the bootstrap port. */
function brokerOf(connection, fleet) {
  const found = /broker (\d+)$/.exec(connection.listener ?? "");
  return found ? ((fleet?.brokers ?? []).find((broker) => broker.node_id === Number(found[1])) ?? null) : null;
}
