"""Shell: The controller role of a node: listeners, their APIs, and the single writer.

Quorum and loader belong to the process, which shares them with its broker role if it has one.
Brokers reach this role over the network only, also from the same process.

Start order: `__init__` subscribes to the loader, so that it misses no committed record. `start`
listens and passes the bound endpoints to the quorum. Connections are accepted once the quorum has
started, too; it may start before or after this role.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence

from controller.api_table import build_table
from controller.configs.min_isr import first_records
from controller.settings import ControllerSettings
from controller.writer.registration import ControllerRegistrar
from controller.writer.stats import ImageCounts, image_families, stats_families
from controller.writer.writer import Controller
from metalog.first_records import read_first_records
from metalog.loader import MetadataLoader
from metalog.quorum.core.voters import VoterEndpoint
from metalog.quorum.node import QuorumNode
from metalog.supported import SUPPORTED_FEATURES
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.transport.admission import ConnectionGate
from protocol.transport.connection import ServerConnection
from protocol.transport.memory import RequestMemory
from protocol.transport.server import Server
from runtime.clock import Clock
from runtime.config import Listener, NodeConfig, keys_log
from runtime.metrics import Family, Metrics
from runtime.tasks import Supervisor
from serving.features import features_of
from serving.listener_settings import connection_limits, server_limits
from serving.listeners import SECURITY_PROTOCOL_IDS, Listeners
from storage.files import Files

CLOSE_GRACE_MS = 2_000.0


class ControllerServer:
    """The controller role of a process."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        rng: random.Random,
        files: Files,
        quorum: QuorumNode,
        loader: MetadataLoader,
        supervisor: Supervisor,
        metrics: Metrics,
        incarnation_id: bytes,
    ) -> None:
        """Build the role and subscribe to the loader.

        Args:
            incarnation_id: of the process, shared with its broker.

        Raises:
            StartupRefused: the first records are damaged (`read_first_records`).
        """
        self.config = config
        self._clock = clock
        self._rng = rng
        self._quorum = quorum
        self._loader = loader
        self._supervisor = supervisor
        self._incarnation_id = incarnation_id
        self._settings = ControllerSettings.of(
            config,
            cluster_id=quorum.cluster_id,
            incarnation_id=incarnation_id,
            features=SUPPORTED_FEATURES,
        )
        self.controller = Controller(
            self._settings,
            quorum,
            loader,
            clock=clock,
            rng=rng,
            supervisor=supervisor,
            bootstrap=first_records(
                read_first_records(files, config.metadata_log_dir),
                config[keys_log.MIN_INSYNC_REPLICAS],
            ),
        )
        self.handlers = build_table(
            self.controller,
            quorum,
            unstable=self._settings.unstable_versions,
            features=lambda: features_of(loader.image, quorum.kraft_version),
            clock=clock,
        )
        self._listeners = Listeners(
            clock=clock,
            supervisor=supervisor,
            limits=server_limits(config),
            gate=ConnectionGate(connection_limits(config)),
        )
        self._registration: asyncio.Task[None] | None = None
        self._counts: ImageCounts | None = None
        self._unregister_metrics = metrics.register(self.collect)
        quorum.watchers.watch_gone(self.controller.contacts.process_gone)

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen on the controller listeners and start the controller's registration.

        Raises:
            OSError: an address is in use.
        """
        memory = RequestMemory(self._settings.request_memory_bytes)
        for listener in self.config.controller_listeners:
            await self._listeners.bind(
                listener,
                self.handlers,
                memory=memory,
                on_admit=self._refusal,
                for_nodes=True,
            )
        await self._listeners.listen()
        self._quorum.advertise(
            tuple((e.name, VoterEndpoint(e.host, e.port)) for e in self.advertised_listeners)
        )
        registrar = ControllerRegistrar(
            self._loader,
            self._registration_request(),
            self._active_controller,
            clock=self._clock,
            rng=self._rng,
        )
        self._registration = self._supervisor.spawn("register the controller", registrar.run())

    async def stop(self) -> None:
        """Answer waiting requests and stop listening. The node stops the quorum itself."""
        self._unregister_metrics()
        if self._registration is not None:
            self._registration.cancel()
        self.controller.stop()
        await self._listeners.close(CLOSE_GRACE_MS)

    # --- endpoints ----------------------------------------------------------------------------

    @property
    def advertised_listeners(self) -> list[Listener]:
        """Controller listeners to advertise to other nodes."""
        return self._listeners.advertised(self.config.advertised_controller_listeners)

    @property
    def bound_listeners(self) -> Mapping[str, tuple[str, int]]:
        """Host and port by listener name, once they are bound."""
        return self._listeners.bound

    def _refusal(self, connection: ServerConnection) -> str | None:
        """Return why a connection is refused, None if it is not.

        The quorum advertises the ports, so they are bound before it starts.
        """
        return None if self._quorum.is_started else "the metadata log is not open yet"

    def _active_controller(self) -> tuple[str, int] | None:
        if not self._quorum.is_started:
            return None
        endpoint = self._quorum.leader_endpoint()
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _registration_request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self.config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                ControllerRegistrationRequest.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=SECURITY_PROTOCOL_IDS[listener.protocol],
                )
                for listener in self.advertised_listeners
            ],
            features=[
                ControllerRegistrationRequest.Feature(
                    name=name,
                    min_supported_version=levels.min_level,
                    max_supported_version=levels.max_level,
                )
                for name, levels in sorted(SUPPORTED_FEATURES.items())
            ],
        )

    # --- metrics ------------------------------------------------------------------------------

    def collect(self) -> Iterator[Family | None]:
        """Yield the controller's metrics; those of its listeners are read from `servers`."""
        controller = self.controller
        image = controller.committed_image
        counts = self._counts
        if counts is None or not counts.hold_for(image):
            counts = ImageCounts(controller.committed_view())
            yield from counts.steps()
            self._counts = counts
        applied_at_ms = image.provenance.timestamp_ms
        lag_ms = 0 if controller.is_active else max(self._clock.now_ms() - applied_at_ms, 0)
        yield from controller.mutation_quotas.collect(self._clock.monotonic_ms())
        yield from image_families(counts, is_active=controller.is_active)
        yield from stats_families(
            controller.stats,
            applied=controller.last_applied_offset,
            committed=controller.last_committed_offset,
            applied_at_ms=applied_at_ms,
            lag_ms=lag_ms,
        )

    @property
    def servers(self) -> Sequence[Server]:
        """The listeners, for the metrics that combine all roles."""
        return self._listeners.servers
