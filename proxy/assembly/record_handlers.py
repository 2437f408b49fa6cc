"""The handlers of Produce and Fetch, with the parts that they need."""

from __future__ import annotations

from proxy.assembly.parts import Parts
from proxy.client.rights import ClientRights
from proxy.client.transactional_ids import ClientTransactionalIds
from proxy.coordinator.clock import wall_clock_ms
from proxy.fetch_router import FetchRouter
from proxy.fetching.diskless import DisklessReads
from proxy.fetching.fill import Answering
from proxy.fetching.forward import Forwarding
from proxy.fetching.leader import LeaderReads
from proxy.fetching.replica import ReplicaReads
from proxy.fetching.rounds import Sources
from proxy.fetching.route import Routes
from proxy.produce_offload import ProduceOffload
from proxy.producing.classic import ClassicProduce
from proxy.producing.parts import DisklessProduce


def build_produce(parts: Parts, rights: ClientRights) -> ProduceOffload:
    """Build the handler of Produce."""
    process, diskless, accounts, topics = parts.process, parts.diskless, parts.accounting.accounts, parts.topics.topics
    classic = ClassicProduce(accounts=accounts, addresses=parts.routing.addresses, topics=topics)
    return ProduceOffload(
        topics=topics,
        classic=classic,
        keeps_s=lambda: process.settings.limits.broker_write_timeout_ms / 1000,
        diskless=DisklessProduce(
            classic=classic,
            topics=topics,
            topic_defaults=parts.topics.topic_defaults,
            rights=rights,
            transactional_ids=ClientTransactionalIds(process.settings, process.now),
            additions=parts.transactions.additions,
            quotas=parts.clients.quotas,
            index_watch=diskless.index_watch,
            intake=diskless.intake,
            accounts=accounts,
            racks=parts.routing.racks,
            stats=process.stats,
            memory=process.memory,
            turns=process.turns,
            now=process.now,
            wall_clock_ms=wall_clock_ms,
        ),
    )


def build_fetch(parts: Parts, rights: ClientRights) -> FetchRouter:
    """Build the handler of Fetch."""
    process, replicas, routing = parts.process, parts.replicas, parts.routing
    settings, stats, now, cluster = process.settings, process.stats, process.now, parts.brokers.cluster
    accounts, quotas = parts.accounting.accounts, parts.clients.quotas
    routes = Routes(
        settings,
        near_brokers=replicas.near_brokers,
        shunned=replicas.shunned,
        log_ends=replicas.log_ends,
        replicas=replicas.replicas,
        replica_selector=replicas.replica_selector,
        racks=routing.racks,
        rights=rights,
        now=now,
    )
    sources = Sources(
        settings,
        routes=routes,
        diskless=DisklessReads(
            settings.rack, reader=parts.diskless.reader, rights=rights, turns=process.turns, now=now
        ),
        replicas=ReplicaReads(
            settings,
            cluster=cluster,
            connections=replicas.replica_connections,
            replicas=replicas.replicas,
            shunned=replicas.shunned,
            quotas=quotas,
        ),
        leaders=LeaderReads(
            settings.brokers,
            cluster=cluster,
            addresses=routing.addresses,
            memory=replicas.replica_memory,
            turns=process.turns,
            now=now,
        ),
        answering=Answering(
            accounts=accounts, quotas=quotas, racks=routing.racks, stats=stats, unread=parts.clients.unread
        ),
        forwarding=Forwarding(accounts=accounts, addresses=routing.addresses, stats=stats),
        quotas=quotas,
        stats=stats,
        turns=process.turns,
        now=now,
    )
    return FetchRouter(topics=parts.topics.topics, racks=routing.racks, sources=sources)
