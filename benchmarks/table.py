"""Format the figures of a run as a Markdown table, next to the figures of others."""

from __future__ import annotations

from typing import Any

PEERS = """\
Others, measured on the same kind of machine in runs of their own (an old release where one is named): Kroxylicious 0.12
keeps 0.89–0.91 of direct produce throughput and 0.64 of consume, at 0.96 and 0.61 CPU s/GB and 411–1415 MiB; its
0.24-SNAPSHOT 0.75–0.90 and 0.54, at 2.15 and 0.88 CPU s/GB. Tansu 0.6.0, a diskless broker, on an S3 server: 37 MB/s
produce, p50 740 ms, p99 1000 ms, 6.8 CPU s/GB, 17 MB/s read. KIP-1163 aims at p50 500 ms and p99 1–2 s.

The S3 server is SeaweedFS over HTTP. Our requests to it are signed without their content, as they are over TLS.

Small requests next to other proxies, where we are worse, are in `peers.md`. Consuming a diskless topic costs more CPU
per GB than passing a classic one through: segments are read, and their bytes copied once into the rack's cache.
"""


WAYS = ("direct", "follower", "plain", "rerouted")
"""From the leader, from the follower, through the proxy to the leader, through the proxy to the follower."""


def classic_reads(figures: dict[str, Any]) -> list[str]:
    """Compare classic topics read from a replica in the reader's rack with reads from the leader in another rack."""

    def cell(name: str, digits: int) -> str:
        if name not in figures:
            return "–"
        value = figures[name]
        return f"{value['median']:.{digits}f} ({value['min']:.{digits}f}–{value['max']:.{digits}f})"

    lines = [
        "| classic topics, read in another rack than the leader's | leader, direct | follower, direct | proxied to the "
        "leader | proxied to the near replica |",
        "|---|---|---|---|---|",
    ]
    readers = {"librdkafka": "librdkafka", "v12": "Fetch v12, simplest reader", "v4": "Fetch v4, simplest reader"}
    rows = [(f"{title}, MB/s", f"{reader}_{{way}}_mb_s", 0) for reader, title in readers.items()]
    rows += [(f"proxy's CPU s/GB, {title}", f"{reader}_{{way}}_cpu_s_gb", 2) for reader, title in readers.items()]
    for label, title in (("e2e", "end to end at 200/s"), ("rare", "end to end at 5/s")):
        rows += [(f"{title}, {percentile}, ms", f"{label}_{{way}}_{percentile}_ms", 2) for percentile in ("p50", "p99")]
    rows += [
        (f"CPU of 100 readers that wait, {count} near {sources}", f"idle_{count}_{{way}}_cpu_share", 3)
        for count, sources in (("one", "replica"), ("two", "replicas"))
    ]
    for title, name, digits in rows:
        of_proxy = "cpu" in name
        cells = ["" if of_proxy and way in WAYS[:2] else cell(name.format(way=way), digits) for way in WAYS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    times = ", ".join(f"{cell(f'{reader}_cpu_ratio', 2)} with {title}" for reader, title in readers.items())
    return [*lines, "", f"CPU time to the near replica ÷ to the leader, pair by pair: {times}.", ""]


def markdown(result: dict[str, Any]) -> str:
    """Format everything of `bench.json` for a reader."""
    figures = result["figures"]

    def cell(name: str, digits: int = 0) -> str:
        if name not in figures:
            return "–"
        value = figures[name]
        return f"{value['median']:.{digits}f} ({value['min']:.{digits}f}–{value['max']:.{digits}f})"

    def ratio(one: str, other: str) -> str:
        if one not in figures or other not in figures:
            return "–"
        return f"{figures[one]['median'] / figures[other]['median']:.2f}"

    lines = [
        "# Benchmark",
        "",
        f"{result['when']}, {result['machine']['cpus']} CPUs shared by clients, brokers, stores and proxies, "
        f"{result['arguments']['rounds']} interleaved rounds, {result['wall_seconds']:.0f} s in all. "
        "Median (lowest–highest).",
        "",
        "| classic topics | direct | proxied | proxied ÷ direct | proxies' CPU s/GB |",
        "|---|---|---|---|---|",
    ]
    for what in ("produce", "consume"):
        direct, proxied = f"classic_{what}_direct_mb_s", f"classic_{what}_proxied_mb_s"
        cpu = cell(f"classic_{what}_proxied_proxy_cpu_s_gb", 2)
        lines.append(f"| {what}, MB/s | {cell(direct)} | {cell(proxied)} | {ratio(proxied, direct)} | {cpu} |")
    for what, title in (("produce", "produce"), ("e2e", "end to end")):
        for percentile in ("p50", "p99"):
            direct, proxied = (f"classic_{what}_{way}_{percentile}_ms" for way in ("direct", "proxied"))
            lines.append(
                f"| {title} {percentile} at 200/s, ms | {cell(direct, 3)} | {cell(proxied, 3)} | "
                f"{ratio(proxied, direct)} | |"
            )
    lines += ["", "| diskless topics | file storage | S3 server |", "|---|---|---|"]
    rows = [
        ("produce, MB/s", "produce_mb_s", 0),
        ("proxies' CPU s/GB, produce", "produce_proxy_cpu_s_gb", 2),
        ("S3 server's CPU s/GB, produce", "produce_store_cpu_s_gb", 1),
    ]
    for where, title in (("own_rack", "consume in the producer's rack"), ("other_rack", "consume in another rack")):
        rows.append((f"{title}, MB/s", f"consume_{where}_mb_s", 0))
        rows.append((f"proxies' CPU s/GB, {title}", f"consume_{where}_proxy_cpu_s_gb", 2))
    for what, title in (("produce", "produce"), ("e2e", "end to end, to another rack")):
        rows += [(f"{title} {percentile}, ms", f"{what}_{percentile}_ms", 0) for percentile in ("p50", "p99")]
    for title, name, digits in rows:
        lines.append(f"| {title} | {cell(f'diskless_file_{name}', digits)} | {cell(f'diskless_s3_{name}', digits)} |")
    peak = " | ".join(cell(f"proxy_peak_rss_mib_{storage}") for storage in ("file", "s3"))
    lines += [f"| peak resident memory of a proxy, MiB | {peak} |", "", *classic_reads(figures), PEERS]
    return "\n".join(lines)
