"""A controller and a metadata log in one object: enough for a broker to join, over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metalog.image.delta import MetadataDelta
from metalog.image.replay import Replayer
from metalog.image.values import EMPTY_IMAGE, MetadataImage
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.metadata.unfence_broker_record import UnfenceBrokerRecord
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.embedded import answer_embedded
from protocol.transport.server import Server
from runtime.clock import SystemClock
from testkit.memory.broker import topic_id

Publisher = Callable[[MetadataDelta, MetadataImage], None]


class FakeController:
    """Serves one broker. Also a replacement for `MetadataLoader`."""

    def __init__(self) -> None:
        self._replayer = Replayer()
        self._publishers: list[Publisher] = []
        self._offset = 0
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.registration_errors: list[ErrorCode] = []
        self.heartbeat_errors: list[ErrorCode] = []
        self.envelope_errors: list[ErrorCode] = []
        self.envelopes = 0
        self.assignments: list[AssignReplicasToDirsRequest] = []
        self.grant_shutdown = True
        self.tells_late = False
        """If set, the image shows the broker unfenced only at the second heartbeat that could
        unfence it."""
        self.broker_epoch = -1
        self.address: tuple[str, int] | None = None
        self.inner = HandlerTable()
        self.inner.register(ApiKey.CREATE_TOPICS, self._create_topics)
        table = HandlerTable()
        table.register(ApiKey.BROKER_REGISTRATION, self._register)
        table.register(ApiKey.BROKER_HEARTBEAT, self._heartbeat)
        table.register(ApiKey.ENVELOPE, self._envelope)
        table.register(ApiKey.CREATE_TOPICS, self._create_topics)
        table.register(ApiKey.ALLOCATE_PRODUCER_IDS, self._allocate)
        table.register(ApiKey.ASSIGN_REPLICAS_TO_DIRS, self._assign)
        table.serve_api_versions()
        self._server = Server(table, clock=SystemClock(), listener="CONTROLLER")

    async def start(self) -> None:
        self.address = await self._server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        await self._server.close(100)

    def endpoint(self) -> tuple[str, int] | None:
        return self.address

    # --- MetadataLoader -----------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        return self._replayer.image

    @property
    def kraft_version(self) -> int:
        return 0

    def add_publisher(self, publisher: Publisher) -> None:
        self._publishers.append(publisher)
        if self.image is not EMPTY_IMAGE:
            publisher(MetadataDelta(EMPTY_IMAGE, self.image), self.image)

    def replay(self, *records: Any) -> None:
        before = self._replayer.image
        image = self._replayer.apply_batch(
            records, base_offset=self._offset, epoch=1, timestamp_ms=0
        )
        self._offset += len(records)
        delta = MetadataDelta(before, image, self._replayer.take_touched())
        for publisher in list(self._publishers):
            publisher(delta, image)

    # --- APIs ---------------------------------------------------------------------------------

    def _register(
        self, _context: RequestContext, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        self.registrations.append(request)
        if self.registration_errors:
            return BrokerRegistrationResponse(error_code=self.registration_errors.pop(0))
        known = self.image.cluster.brokers.get(request.broker_id)
        again = known is not None and known.incarnation_id == request.incarnation_id
        self.broker_epoch = self.broker_epoch if again else self._offset
        self.replay(
            RegisterBrokerRecord(
                broker_id=request.broker_id,
                broker_epoch=self.broker_epoch,
                incarnation_id=request.incarnation_id,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(
                        name=listener.name, host=listener.host, port=listener.port
                    )
                    for listener in request.listeners
                ],
                fenced=known.fenced if again and known is not None else True,
                log_dirs=request.log_dirs if (self.image.metadata_version or 0) >= 17 else [],
            )
        )
        return BrokerRegistrationResponse(broker_epoch=self.broker_epoch)

    def _heartbeat(
        self, _context: RequestContext, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatResponse:
        self.heartbeats.append(request)
        if self.heartbeat_errors:
            return BrokerHeartbeatResponse(error_code=self.heartbeat_errors.pop(0))
        if request.want_shut_down:
            return BrokerHeartbeatResponse(
                is_caught_up=True, is_fenced=True, should_shut_down=self.grant_shutdown
            )
        if request.current_metadata_offset < self.broker_epoch:
            return BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True)
        broker = self.image.cluster.brokers[request.broker_id]
        if broker.fenced and self.tells_late:
            self.tells_late = False
        elif broker.fenced:
            self.replay(UnfenceBrokerRecord(id=request.broker_id, epoch=self.broker_epoch))
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)

    async def _envelope(
        self, context: RequestContext, request: EnvelopeRequest
    ) -> EnvelopeResponse:
        self.envelopes += 1
        if self.envelope_errors:
            return EnvelopeResponse(error_code=self.envelope_errors.pop(0))
        parts = await answer_embedded(self.inner, bytes(request.request_data), base=context)
        assert parts is not None
        return EnvelopeResponse(response_data=b"".join(bytes(part) for part in parts))

    def _create_topics(
        self, _context: RequestContext, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        response = CreateTopicsResponse()
        for wanted in request.topics:
            number = len(self.image.topics.by_id) + 1
            node_id = next(iter(self.image.cluster.brokers))
            self.replay(
                TopicRecord(name=wanted.name, topic_id=topic_id(number)),
                *[
                    PartitionRecord(
                        partition_id=index,
                        topic_id=topic_id(number),
                        replicas=[node_id],
                        isr=[node_id],
                        leader=node_id,
                    )
                    for index in range(max(1, wanted.num_partitions))
                ],
            )
            response.topics.append(
                CreateTopicsResponse.CreatableTopicResult(name=wanted.name, error_message=None)
            )
        return response

    def _assign(
        self, _context: RequestContext, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        """Record the request and refuse it, so that the broker repeats it: assignments are not
        stored."""
        self.assignments.append(request)
        return AssignReplicasToDirsResponse(error_code=ErrorCode.NOT_CONTROLLER)

    def _allocate(self, _context: RequestContext, _request: Any) -> AllocateProducerIdsResponse:
        return AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000)
