"""Shell: The composition root of a node: its roles, wired together, started and stopped in order.

A node is the same object in a process (uvloop, real files) and in a simulation (virtual event loop,
files in memory). Everything it needs from outside is an argument of `build_node`.

Start:
- lock the directories and read the node's identity;
- open the metadata log and listen as a controller;
- open the partitions, listen and register as a broker.

Stop is the reverse: the broker shuts down while a controller can still answer it. A fatal failure
resolves `failed`; the caller that runs the node then stops it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from kraftbox.node_metrics import NodeMetrics
from metalog.finalised import check_features, finalised_features
from metalog.loader import MetadataLoader
from metalog.quorum.config import QuorumConfig
from metalog.quorum.node import QuorumNode
from metalog.supported import SUPPORTED_FEATURES
from protocol.ids import random_uuid
from protocol.transport.server import Server
from runtime.clock import Clock
from runtime.config import HostPort, NodeConfig, keys_kraftbox
from runtime.config.listeners import parse_host_ports
from runtime.errors import StartupRefused
from runtime.http import HttpServer, Question, Response, text_response
from runtime.log import get_logger
from runtime.loop_lag import LoopLag
from runtime.metrics import CONTENT_TYPE, OPEN_CONTENT_TYPE, Metrics, wants_open_metrics
from runtime.tasks import Supervisor
from storage.files import Files, LossyFiles, SlowFiles
from storage.log.directory import MetaProperties, check_meta, lock_directory
from storage.log.errors import BadLogDirectory, CorruptLog

if TYPE_CHECKING:
    from broker.assembly import BrokerServer
    from broker.tiering.tier import ObjectsFactory
    from controller.assembly import ControllerServer

_log = get_logger("kraftbox.node")

PROMETHEUS = "prometheus_client.process_collector"

RECOVERED = "Transitioning from RECOVERY to RUNNING"
"""The log line of Apache Kafka that container test libraries wait for."""


def build_node(
    config: NodeConfig,
    *,
    clock: Clock,
    rng: random.Random,
    files: Files,
    open_objects: ObjectsFactory | None = None,
) -> Node:
    """Return a node that is not started. Call it on the event loop that will run the node.

    `open_objects` opens the object store of tiered storage if that is enabled; None uses the store
    in the configuration. With `kraftbox.fault.files=lossy` the node loses unflushed data when it
    dies. With `slow`, each flush and read takes `kraftbox.fault.files.flush.ms` and `.read.ms`.
    """
    fault = config[keys_kraftbox.KRAFTBOX_FAULT_FILES]
    if fault == "lossy":
        files = LossyFiles(files, now_ms=clock.now_ms)
    elif fault == "slow":
        files = SlowFiles(
            files,
            flush_ms=config[keys_kraftbox.KRAFTBOX_FAULT_FILES_FLUSH_MS],
            read_ms=config[keys_kraftbox.KRAFTBOX_FAULT_FILES_READ_MS],
        )
        files.slow = not config[keys_kraftbox.KRAFTBOX_FAULT_FILES_ON_SIGNAL]
    return Node(config, clock=clock, rng=rng, files=files, open_objects=open_objects)


class Node:
    """One node with its roles; create it with `build_node`."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        rng: random.Random,
        files: Files,
        open_objects: ObjectsFactory | None,
    ) -> None:
        self.config = config
        self._open_objects = open_objects
        self.clock = clock
        self.rng = rng
        self.files = files
        self.metrics = Metrics()
        self.supervisor = Supervisor(self._on_fatal)
        self.failed: asyncio.Future[tuple[str, BaseException]] = (
            asyncio.get_running_loop().create_future()
        )
        self.cluster_id = ""
        self._incarnation_id = random_uuid(rng)
        self.quorum: QuorumNode | None = None
        self.loader: MetadataLoader | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self.http_address: str | None = None
        self._http: HttpServer | None = None
        self._lag = LoopLag(config[keys_kraftbox.KRAFTBOX_LOOP_LAG_INTERVAL_MS])
        self._releases: list[Callable[[], None]] = []
        self._stopped = False

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every role and return once all serve. Call `stop` afterwards, also if this raises.

        Raises StartupRefused for a cause that an operator can remove.
        """
        try:
            await self._start()
        except (BadLogDirectory, CorruptLog) as error:
            raise StartupRefused(str(error)) from error
        except OSError as error:
            # For an error with a file name, the message needs the name; the errno is not needed.
            plain = error.strerror if error.filename is None else None
            raise StartupRefused(plain or str(error)) from error

    async def stop(self) -> None:
        """Stop the roles in order. It is idempotent and may follow a failed `start`."""
        if self._stopped:
            return
        self._stopped = True
        self._lag.stop()
        if self.broker is not None:
            await self.broker.stop()
        if self.controller is not None:
            await self.controller.stop()
        if self.quorum is not None:
            await self.quorum.stop()
        if self._http is not None:
            await self._http.close()
        await self.supervisor.close()
        while self._releases:
            self._releases.pop()()
        _log.info("Stopped", node_id=self.config.node_id)

    async def _start(self) -> None:
        config = self.config
        meta = self._take_directories()
        self._check_features()
        self.cluster_id = meta.cluster_id
        self._lag.start()
        self.metrics.register(self._lag.collect)
        self.metrics.register(
            NodeMetrics(
                monotonic_ms=self.clock.monotonic_ms,
                servers=self._servers,
                quorum=lambda: self.quorum,
                loader=lambda: self.loader,
                supervisor=self.supervisor,
                is_broker=config.is_broker,
                is_controller=config.is_controller,
            ).collect
        )
        await self._start_http()
        self.quorum = QuorumNode(
            QuorumConfig.from_node_config(
                config, cluster_id=meta.cluster_id, directory_id=meta.directory_id or bytes(16)
            ),
            files=self.files,
            clock=self.clock,
            rng=self.rng,
            supervisor=self.supervisor,
        )
        self.loader = MetadataLoader(self.quorum, self.supervisor)
        if config.is_controller:
            self.controller = self._build_controller(self.loader, self.quorum)
            await self.controller.start()
        await self.quorum.start()
        if config.is_broker:
            self.broker = self._build_broker(self.loader, self.quorum)
            self.quorum.watchers.watch_leader(self.broker.controller_moved)
            await self.broker.start()
        _log.info(RECOVERED, node_id=config.node_id, cluster_id=self.cluster_id)

    def _take_directories(self) -> MetaProperties:
        """Lock the directories; return the meta.properties of the metadata log's directory."""
        config = self.config
        metas: list[MetaProperties] = []
        for directory in dict.fromkeys([config.metadata_log_dir, config.log_dir]):
            meta = check_meta(
                self.files,
                directory,
                node_id=config.node_id,
                cluster_id=metas[0].cluster_id if metas else None,
            )
            self._releases.append(lock_directory(self.files, directory))
            metas.append(meta)
        return metas[0]

    def _check_features(self) -> None:
        """Refuse metadata with features that this build does not support, before writing
        anything.
        """
        directory = self.config.metadata_log_dir
        levels = finalised_features(self.files, directory)
        check_features(levels, SUPPORTED_FEATURES, directory)

    def _build_controller(self, loader: MetadataLoader, quorum: QuorumNode) -> ControllerServer:
        from controller.assembly import ControllerServer

        return ControllerServer(
            self.config,
            clock=self.clock,
            rng=self.rng,
            files=self.files,
            quorum=quorum,
            loader=loader,
            supervisor=self.supervisor,
            metrics=self.metrics,
            incarnation_id=self._incarnation_id,
        )

    def _build_broker(self, loader: MetadataLoader, quorum: QuorumNode) -> BrokerServer:
        from broker.assembly import BrokerServer

        return BrokerServer(
            self.config,
            clock=self.clock,
            rng=self.rng,
            files=self.files,
            cluster_id=self.cluster_id,
            loader=loader,
            controller_endpoint=quorum.leader_endpoint,
            supervisor=self.supervisor,
            metrics=self.metrics,
            incarnation_id=self._incarnation_id,
            open_objects=self._open_objects,
        )

    def _on_fatal(self, name: str, error: BaseException) -> None:
        _log.error("The node must stop", task=name, error=repr(error), exc_info=error)
        if not self.failed.done():
            self.failed.set_result((name, error))

    # --- state for health checks and metrics -----------------------------------------------------

    def not_ready(self) -> Iterable[str]:
        """Yield the reasons why this node does not serve yet; none if every role serves."""
        if self.quorum is None or self.quorum.high_watermark is None:
            yield "the metadata log is not open yet"
            return
        if self.quorum.leader()[0] is None:
            yield "the metadata quorum has no leader"
        if self.config.is_broker and (self.broker is None or not self.broker.ready):
            yield "the broker is not registered, caught up and unfenced"

    @property
    def ready(self) -> bool:
        return not any(self.not_ready())

    def bound_port(self, listener: str) -> int:
        """Return the port that a broker listener is bound to.

        Raises KeyError for an unknown name.
        """
        assert self.broker is not None, "only a broker has client listeners"
        return self.broker.bound_listeners[listener][1]

    def client_addresses(self) -> list[str]:
        """Return `host:port` of each advertised listener."""
        addresses = []
        for listener in self.config.advertised_listeners:
            host = f"[{listener.host}]" if ":" in listener.host else listener.host
            addresses.append(f"{host}:{listener.port or self.bound_port(listener.name)}")
        return addresses

    def _servers(self) -> Iterator[Server]:
        """Yield the listeners of the node's roles."""
        for role in (self.broker, self.controller):
            if role is not None:
                yield from role.servers

    # --- health and metrics -------------------------------------------------------------------

    async def _start_http(self) -> None:
        address = self._http_listener()
        if address is None:
            return
        self._http = HttpServer(
            {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics},
            self.supervisor,
        )
        try:
            bound = await self._http.start(*address)
        except OSError as error:
            if self.config.is_set(keys_kraftbox.KRAFTBOX_HTTP_LISTENER):
                raise
            # The address was not configured, so another node on this machine may have the default
            # port.
            _log.warning("the default port for health and metrics is taken", error=str(error))
            bound = await self._http.start(address.host, 0)
        self.http_address = f"{bound[0]}:{bound[1]}"
        _log.info("Serving health and metrics", address=self.http_address)

    def _http_listener(self) -> HostPort | None:
        text = self.config[keys_kraftbox.KRAFTBOX_HTTP_LISTENER]
        return parse_host_ports("kraftbox.http.listener", [text])[0] if text else None

    def _healthz(self, _: Question) -> Response:
        if self.failed.done():
            return text_response(503, f"failed: {self.failed.result()[0]}\n")
        return text_response(200, "ok\n")

    def _readyz(self, _: Question) -> Response:
        reasons = list(self.not_ready())
        if reasons:
            return text_response(503, "".join(f"{reason}\n" for reason in reasons))
        return text_response(200, "ready\n")

    def _metrics(self, question: Question) -> Response:
        open_metrics = wants_open_metrics(question.accept)
        content_type = OPEN_CONTENT_TYPE if open_metrics else CONTENT_TYPE
        return Response(200, content_type, self._metrics_pieces(open_metrics))

    async def _metrics_pieces(self, open_metrics: bool) -> AsyncGenerator[bytes, None]:
        if PROMETHEUS not in sys.modules:
            # The import takes tens of milliseconds at the first scrape; requests must not wait for
            # it.
            await asyncio.to_thread(import_module, PROMETHEUS)
        for piece in self.metrics.exposition(open_metrics=open_metrics):
            yield piece
