// Converts the flows that the proxy reports to legs: records go from clients to this proxy and on to brokers, or back, and each
// leg between two racks is a crossing. No drawing here.

/**
 * @typedef {{side: "clients"|"brokers", rack: string, direction: "produce"|"fetch", crosses: boolean, bytes: number,
 *   rate: number, usdPerHour: number, usd: number}} Leg
 */

/** Racks on the way of a flow, as the proxy counts borders: a rack that is not known counts as its neighbour. */
function way(flow, ownRack) {
  const own = ownRack || flow.serving_rack || flow.client_rack || "";
  return { client: flow.client_rack || own, own, serving: flow.serving_rack || own };
}

/** The legs of all flows, summed by side, rack and direction. @returns {Leg[]} */
export function legsOf(flows, ownRack) {
  const legs = new Map();
  for (const flow of flows) {
    const { client, own, serving } = way(flow, ownRack);
    const borders = Number(client !== own) + Number(serving !== own);
    const sides = [["clients", client]];
    // Diskless records come from object storage, in the proxy's rack: there is no broker at the other end.
    sides.push([flow.kind === "diskless" && serving === own ? "storage" : "brokers", serving]);
    for (const [side, rack] of sides) {
      const crosses = rack !== own;
      const key = JSON.stringify([side, rack, flow.direction]);
      const leg = legs.get(key) ?? { side, rack, direction: flow.direction, crosses, bytes: 0, rate: 0, usdPerHour: 0, usd: 0 };
      leg.bytes += flow.bytes ?? 0;
      leg.rate += flow.bytes_per_second ?? 0;
      if (crosses) {
        leg.usdPerHour += (flow.usd_per_hour ?? 0) / borders;
        leg.usd += (flow.cost_usd ?? 0) / borders;
      }
      legs.set(key, leg);
    }
  }
  return [...legs.values()].sort((one, other) => other.rate - one.rate || other.bytes - one.bytes);
}

/** All racks that a picture shows: of the proxy, of the brokers, of the flows; by name. */
export function racksOf(overview, fleet) {
  const racks = new Set([overview.rack || ""]);
  for (const broker of fleet?.brokers ?? []) if (broker.rack) racks.add(broker.rack);
  for (const flow of overview.flows ?? []) {
    const { client, serving } = way(flow, overview.rack);
    racks.add(client).add(serving);
  }
  return [...racks].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
}

/** What crosses now and so far; a byte counts once for each border. */
export function crossings(flows) {
  const crossing = (flows ?? []).filter((flow) => flow.crosses);
  const sum = (key) => crossing.reduce((total, flow) => total + (flow[key] ?? 0), 0);
  return {
    rate: sum("crossed_bytes_per_second"),
    usdPerHour: sum("usd_per_hour"),
    usd: sum("cost_usd"),
    bytes: sum("crossed_bytes"),
  };
}
