"""The page of all metrics, `docs/metrics.md`, from the collector and its catalogue; written by `generate_docs.py`."""

from __future__ import annotations

from proxy.admin.catalogue import LABELS, families

_BEGINNING = """\
# Metrics

The admin port (`admin.port`, on loopback by default) serves the metrics in Prometheus' text format at `/metrics`:

```sh
curl -s http://127.0.0.1:19080/metrics | grep diskless_proxy_ready
```

- Names begin with `diskless_proxy_`, which the tables below leave out. They are never renamed.
- Counters begin with 0 when a process starts, and never fall. Money is counted at the prices of the time, so lower
  `prices` do not make it fall.
- The page also has Prometheus' own `process_*` (CPU, memory, file descriptors, `process_start_time_seconds`) and
  `python_*`.
- With [workers](operations/restarts.md#workers) the page has the sum over all workers. `process_*` and `python_*`
  then have the label `worker`, which is `storage` for the storage process.
- The number of [labels](#labels) is bounded, whatever clients do.
- `deploy/prometheus/` has a scrape configuration, recording rules and [alerts](alerts.md). `deploy/grafana/` has a
  [dashboard](#the-dashboard) that shows what crosses racks and what it costs.

## The dashboard

The picture shows the first two rows of `deploy/grafana/diskless-proxy.json`, with five minutes of three proxies. One
client has the wrong rack: [*billing* of the admin page](admin-page.md#a-client-whose-rack-is-wrong) runs in rack-a
and names rack-b.

![The rows Overview and Racks and money: three proxies ready, crossing cost 0.04 dollars an hour; one area in \
the graph of bytes that cross racks, classic, rack-b with rack-a, at 560 kB/s; tables with the same bytes by \
racks and by the topic ledger, each with its cost](images/dashboard.png)

- *Bytes that cross racks* has one flow, of clients of rack-b with brokers in rack-a, at 560 kB/s. *Where bytes cross,
  by racks* and *by topic* show that the classic topic `ledger` is produced and fetched across racks, and what that
  cost in the time shown. *Crossing cost* shows that an hour of it costs $0.04. No metric names clients: use
  `diskless-proxy connections`, or the admin page of the proxy in rack-b.
- The picture is not from a Grafana server, because no package registry has one. It shows the dashboard's panels with
  the answers of a real Prometheus, drawn with Grafana's own components (`@grafana/ui` 13.2): `python -m
  tests.deploy.dashboard_picture`. Only the server's own parts, such as its menus, are missing.

## All of them

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
"""

_LABELS = """\

## Labels

| label | values |
|---|---|
"""

_END = """\

## Notes

- `record_bytes_total` and similar metrics count record batches as they are on the wire, so compressed batches by
  their compressed size. The headers of requests and responses are not counted
  ([0031](decisions/0031-record-bytes-by-topic.md)). The sum of fetched bytes is larger than the produced bytes: if a
  broker cuts a batch off at a byte limit, the part counts, and the whole batch counts when the client fetches it
  again. For example, 10.01 MB of a topic were 11.71 MB for librdkafka with its defaults. A proxy does not see the
  replication between brokers.
- `cross_rack_bytes_total` counts a byte once for each border between racks on its way: [what crosses
  racks](racks.md#what-crosses-racks-and-what-it-costs).
- `saved_usd_total` compares with a classic topic that has the same bytes. Its clients use leaders, in the racks of
  the brokers, and it has the brokers' `default.replication.factor` (3 if that is not known). With N racks and R
  replicas, `(N-1)/N` of the bytes cross from the producer to the leader, and the same share crosses to the consumer.
  All bytes cross `R-1` times between brokers, or less often if R is greater than N: [cost](cost.md#the-formulas).
  Bytes that cross racks nevertheless save nothing on their way. Rejected and repeated batches save nothing. The cost
  of PUTs and GETs, `storage_cost_usd_total`, is not subtracted.
- `api_seconds` measures from a complete request until its answer is handed to the connection. So a Fetch includes the
  wait that its client requests (`fetch.max.wait.ms`), and a request includes the wait for earlier requests on its
  connection. Requests without an answer (acks 0) are not included. `produce_seconds` and `fetch_seconds` have only
  requests with diskless topics.
- The bounds of `produce_seconds`, `fetch_seconds` and `api_seconds` of Produce and Fetch depend on the commit
  interval. A batch waits for `diskless.append.commit.interval.ms` at most, and then for its upload and its commit. So
  there the bounds are 2 % of the interval apart. Histograms of different intervals cannot be added, so each interval
  has its own, with the label `commit_interval_ms`. Keep it next to `le`: `histogram_quantile(0.99, sum by (le,
  commit_interval_ms) (rate(diskless_proxy_produce_seconds_bucket[5m])))`. After a reload that changes the interval, a
  new series begins. A process keeps the last four intervals
  ([0070](decisions/0070-latency-bounds-follow-the-interval.md)).
- `event_loop_lag_seconds` is sampled four times a second. It is the additional wait of everything while other work
  keeps the process busy. Values below two milliseconds mean nothing.
- `buffer_bytes` is the present size of a buffer, and `buffer_bytes_limit` its maximum. The buffers are
  `held_requests` (`limits.max_request_bytes_in_memory`), `unread_answers` (a part of it:
  `limits.max_unread_answer_bytes`), `replica_answers` (`fetch.replica_answer_bytes_max`), `wal`
  (`diskless.append.buffer.max.bytes`, uploaded when it is full), and `cache` and `cold_cache` (`fetch.cache_bytes`,
  `fetch.cold_cache_bytes`, which are usually full; with workers, those of the storage process). The five older names
  of the same values stay.
- `fetch_storage_gets` counts the GETs that a Fetch caused itself. Blocks in a cache, and blocks that another Fetch is
  reading, cause none. The hit rate of the caches is `rate(cache_hits_total) / (rate(cache_hits_total) +
  rate(cache_misses_total))`.
- `tasks` has about two tasks for each background job, and one for each request that waits.
- One proxy of the fleet reports these gauges, and they are 0 or missing at the others: `stray_records`, by the proxy
  that [keeps house](operations/past-the-proxies.md#stray-records), and `under_replicated_*`, by the proxy that
  [completes topics](operations/missing-brokers.md#topics-short-of-replicas). Use their maximum. Use the maximum also
  of what all proxies see: `index_*`, `fenced_shards`, `fleet_proxies`, `diskless_topics`, `brokers`.
- `certificate_expiry_seconds` has the proxy's own certificates and their issuers, as the files are now.

## What KIP-1163 lists

The KIP lists what to measure, for a broker with a WAL and a coordinator. The table names the metrics here. `rate` is
PromQL's, over five minutes. Averages and percentiles come from a histogram: `rate(x_sum[5m]) / rate(x_count[5m])`,
`histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))`. For `fetch_seconds`, keep its label as above.

| KIP-1163 | here |
|---|---|
| uploads: count, rate | `uploads_total` |
| object size: average, percentiles | `segment_bytes` |
| upload traffic | `upload_bytes_total` |
| upload latency: average, percentiles | `upload_seconds` |
| upload errors: count, rate | `upload_failures_total`; `storage_errors_total{operation="put"}` for each PUT |
| commits: count, rate | `commits_total` |
| commit latency: average, percentiles | `commit_seconds` |
| commit errors: count, rate | `commit_failures_total` |
| reads: count, rate | `fetch_seconds_count` (Fetch requests with diskless topics), `storage_gets_total` (GETs) |
| read traffic | `record_bytes_total{kind="diskless", direction="fetch"}`, `storage_bytes_read_total` |
| read latency | `fetch_seconds`, `storage_get_seconds` |
| read errors | `storage_errors_total{operation="get"}`, `partition_errors_total{api="Fetch"}` |
| GETs per Fetch | `fetch_storage_gets` |
| cache hits and misses | `cache_hits_total`, `cache_misses_total`, and `cold_` of both |

Some metrics of the KIP have no counterpart, because there is no such part here: metrics that brokers report over JMX
about replicas of diskless topics, about a coordinator in the same process (KIP-1164), and about local log segments of
diskless topics. The coordinator is Redis, which has metrics of its own. A proxy's view of it is `commit_seconds`,
`coordination_bytes_total`, `index_*` and `fenced_shards`. Objects are merged by a [job of the
pipeline](pipeline/merge.md), whose report has the figures.
"""


def page() -> str:
    """Return the whole page."""
    rows = [
        f"| `{family.name.removeprefix('diskless_proxy_')}` | {family.kind} | {family.unit} "
        f"| {', '.join(family.labels) or '–'} | {family.text} |\n"
        for family in families()
    ]
    labels = [f"| `{name}` | {label.text} |\n" for name, label in sorted(LABELS.items())]
    return "".join([_BEGINNING, *rows, _LABELS, *labels, _END])
