"""The metrics that belong to no single role: listeners of all roles, the quorum, the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from metalog.loader import MetadataLoader
from metalog.quorum.metrics import quorum_families
from metalog.quorum.node import QuorumNode
from protocol.transport.request_metrics import TransportMetrics
from protocol.transport.server import Server
from protocol.transport.stats import ApiStats, ConnectionStats
from runtime import process_io
from runtime.config.schema import LONG_MAX
from runtime.metrics import Family, single
from runtime.tasks import Supervisor


class NodeMetrics:
    """Collector of a node's metrics outside its roles.

    Parts not started by the scrape are skipped.
    """

    def __init__(
        self,
        *,
        monotonic_ms: Callable[[], float],
        servers: Callable[[], Iterable[Server]],
        quorum: Callable[[], QuorumNode | None],
        loader: Callable[[], MetadataLoader | None],
        supervisor: Supervisor,
        is_broker: bool,
        is_controller: bool,
    ) -> None:
        """Initialize the collector. `servers` returns the listeners of all roles."""
        self._monotonic_ms = monotonic_ms
        self._servers = servers
        self._quorum = quorum
        self._loader = loader
        self._supervisor = supervisor
        roles = ((process_io.BROKER, is_broker), (process_io.CONTROLLER, is_controller))
        self._io_roles = [role for role, here in roles if here]
        self._transport = TransportMetrics(monotonic_ms, self._apis, self._connection_stats)

    def collect(self) -> Iterator[Family]:
        """Yield the metric families for the registry."""
        yield from self._transport.collect()
        yield from self._request_memory()
        quorum, loader = self._quorum(), self._loader()
        if quorum is not None and quorum.is_started:
            yield from quorum_families(quorum, self._monotonic_ms())
        if loader is not None:
            yield single(
                "kafka_server_metadataloader_currentmetadataversion",
                "Level of metadata.version in the image; 0 before there is one",
                loader.image.metadata_version or 0,
            )
        yield from self._supervisor.collect()
        yield from process_io.collect(self._io_roles)

    def _request_memory(self) -> Iterator[Family]:
        # The listeners of a role share a budget.
        memories = list({id(server.memory): server.memory for server in self._servers()}.values())
        yield single(
            "kafka_network_socketserver_memorypoolused",
            "Bytes of requests in memory that are incomplete or unanswered",
            sum(memory.used_bytes for memory in memories),
        )
        yield single(
            "kafka_network_socketserver_memorypoolavailable",
            "Remaining bytes of queued.max.request.bytes; a huge number if unlimited",
            sum(max(memory.limit_bytes - memory.used_bytes, 0) for memory in memories)
            if any(memory.limit_bytes > 0 for memory in memories)
            else LONG_MAX,
        )
        yield single(
            "kraftbox_request_memory_waiting",
            "Connections whose reading is paused until request memory is released",
            sum(memory.waiting for memory in memories),
        )
        yield single(
            "kraftbox_request_memory_waits_total",
            "Number of times a connection had to wait for request memory",
            sum(memory.waits for memory in memories),
            "counter",
        )
        yield single(
            "kraftbox_request_memory_cut_off_total",
            "Connections closed because others waited for their request memory",
            sum(memory.cut_off for memory in memories),
            "counter",
        )

    def _apis(self) -> Iterable[ApiStats]:
        # The listeners of a role share one table.
        tables = {id(server.handlers): server.handlers for server in self._servers()}
        return [stats for table in tables.values() for stats in table.stats()]

    def _connection_stats(self) -> Iterable[tuple[str, ConnectionStats]]:
        return [(server.listener, server.connection_stats) for server in self._servers()]
