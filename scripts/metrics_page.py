"""The page of all metrics, `docs/metrics.md`, from the collector and its catalogue; written by `generate_docs.py`."""

from __future__ import annotations

from proxy.admin.catalogue import LABELS, families

_BEGINNING = """\
# Metrics

`/metrics` of the admin port (`admin.port`; loopback by default) is a page in Prometheus' text format.
This page is generated from the code.

```sh
curl -s http://127.0.0.1:19080/metrics | grep diskless_proxy_ready
```

- Names begin with `diskless_proxy_`, which is left out below, and are never renamed. Counters begin with 0 when a
  process does and never fall, also where `prices` are lowered: money is counted at the price of its day.
- In addition there are Prometheus' own `process_*` (CPU, memory, file descriptors, `process_start_time_seconds`) and
  `python_*`.
- With [workers](operations/restarts.md#workers) the page is their sum; `process_*` and `python_*` have the label
  `worker` then.
- Labels are bounded, whatever clients do: [labels](#labels).
- `deploy/prometheus/` has a scrape configuration, recording rules and [alerts](alerts.md), `deploy/grafana/` a
  [dashboard](#the-dashboard) that shows what crosses racks and what it costs.

## The dashboard

`deploy/grafana/diskless-proxy.json`, its first two rows, over five minutes of three proxies with one client whose rack
is wrong: the [*billing* of the admin page](admin-page.md#a-client-whose-rack-is-wrong), which runs in rack-a and says
rack-b.

![The rows Overview and Racks and money: three proxies ready, crossing cost 0.04 dollars an hour; one area in \
the graph of bytes that cross racks, classic, rack-b with rack-a, at 560 kB/s; tables with the same bytes by \
racks and by the topic ledger, each with its cost](images/dashboard.png)

- *Bytes that cross racks* has one flow, of clients of rack-b with brokers in rack-a, at some 560 kB/s. *Where bytes
  cross, by racks* and *by topic* say that it is producing and fetching of the classic topic `ledger`, and what it cost
  in the time shown; *Crossing cost*, that an hour of it costs $0.04. No metric names clients:
  `diskless-proxy connections` and the admin page of rack-b's proxy do.
- The picture is not of a Grafana server, which comes by none of the package registries that set-up uses. It is the
  dashboard's panels with the answers of a real Prometheus to their queries, drawn with Grafana's own components
  (`@grafana/ui` 13.2): `python -m tests.deploy.dashboard_picture`. What only the server has, such as its menus, is
  missing.

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

## What needs a word more

- `record_bytes_total` and similar ones count record batches as they are on the wire, compressed where they are, without
  what requests and responses have around them: [0031](decisions/0031-record-bytes-by-topic.md). They are more than
  was produced: a batch that a broker cuts off at a byte limit counts as far as it came, and again when the client
  asks for it again (10.01 MB of a topic came as 11.71 MB to librdkafka with its defaults). Replication between
  brokers is not seen by a proxy.
- `cross_rack_bytes_total` counts a byte once for each border between racks on its way: [what crosses
  racks](racks.md#what-crosses-racks-and-what-it-costs).
- `saved_usd_total` compares with the same bytes of a classic topic whose clients read from leaders, in the racks of
  the brokers and with their `default.replication.factor` (3 where it is not known). Of N racks and R replicas,
  `(N-1)/N` of the bytes cross from the producer to the leader, the same share to the consumer, and all of them
  `R-1` times between brokers, less often where R is more than N: [cost](cost.md#the-formulas). Bytes that crossed
  racks all the same save nothing on their way; batches that were refused, or came once more, save nothing at all.
  What PUTs and GETs cost is `storage_cost_usd_total`: take it off for what is left.
- `api_seconds` is from a request's frame until its answer was handed to the connection, so a Fetch includes the
  wait that its client asks for (`fetch.max.wait.ms`), and a request behind another one on its connection the wait
  for that. Requests without an answer (acks 0) are not in it. `produce_seconds` and `fetch_seconds` are those with
  diskless topics alone.
- The bounds of `produce_seconds`, `fetch_seconds` and `api_seconds` of Produce and Fetch follow the commit interval. A
  lone producer waits for `diskless.append.commit.interval.ms`, its upload and its commit, so bounds lie close there: 2%
  of the interval apart. Histograms of different intervals can't be added up, so each interval has its own, under the
  label `commit_interval_ms`. Keep it next to `le`: `histogram_quantile(0.99, sum by (le, commit_interval_ms)
  (rate(diskless_proxy_produce_seconds_bucket[5m])))`. After a reload that changes the interval, a new series begins;
  a process keeps the four last intervals. [0070](decisions/0070-latency-bounds-follow-the-interval.md)
- `event_loop_lag_seconds` is sampled four times a second: what anything waits on top while something else keeps the
  process busy. Below two milliseconds it means nothing.
- `buffer_bytes` is what is held, `buffer_bytes_limit` the most: `held_requests`
  (`limits.max_request_bytes_in_memory`), `unread_answers` (part of the same: `limits.max_unread_answer_bytes`),
  `replica_answers` (`fetch.replica_answer_bytes_max`), `wal` (`diskless.append.buffer.max.bytes`, which is uploaded
  when it is full), `cache` and `cold_cache` (`fetch.cache_bytes`, `fetch.cold_cache_bytes`, which are full as a
  rule). The five older names of the same stay.
- `fetch_storage_gets` counts the GETs that a Fetch caused itself; what the cache has, and what another Fetch is
  reading already, are none. The hit rate of the caches is `rate(cache_hits_total) / (rate(cache_hits_total) +
  rate(cache_misses_total))`.
- `tasks` are about two for each background job and one for each request that waits.
- Gauges that one proxy of the fleet reports and that are 0, or missing, at the others: `stray_records`, by the proxy
  that [keeps house](operations/past-the-proxies.md#stray-records), and `under_replicated_*`, by the one that [completes
  topics](operations/missing-brokers.md#topics-short-of-replicas). Take their maximum. So it is with what all proxies
  see of the same: `index_*`, `fenced_shards`, `fleet_proxies`, `diskless_topics`, `brokers`.
- `certificate_expiry_seconds` is of the proxy's own certificates, and those that they rest on, as the files are
  now.

## What KIP-1163 lists

The KIP says what is to be measured, for a broker with a WAL and a coordinator; here is where it is found. `rate` is
PromQL's, over five minutes; averages and percentiles are those of a histogram: `rate(x_sum[5m]) /
rate(x_count[5m])`, `histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))`, for `fetch_seconds` with its label as
above.

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

Without a counterpart, as there is no such part: what brokers report over JMX of replicas of diskless topics and of an
in-process coordinator (KIP-1164) – the coordinator is Redis, which reports on itself; `commit_seconds`,
`coordination_bytes_total`, `index_*` and `fenced_shards` are a proxy's view of it – and of local log segments of
diskless topics. Object merging is a [job of the pipeline](pipeline/merge.md), whose figures are in its report.
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
