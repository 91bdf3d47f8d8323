"""A broker's data path in memory: real parts, a manual clock, and an image built from records."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from broker.admin import forwarding
from broker.admin.auto_topics import AutoTopicSettings, TopicCreator
from broker.apis import (
    alter_configs,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_user_scram_credentials,
    incremental_alter_configs,
    list_config_resources,
    list_offsets,
    offset_for_leader_epoch,
)
from broker.apis import fetch as fetch_api
from broker.apis import metadata as metadata_api
from broker.apis import produce as produce_api
from broker.context import BrokerContext
from broker.controller_link.channel import ChannelPool, ControllerChannel
from broker.metadata.cache import MetadataCache
from broker.metadata.lost_brokers import LostBrokers
from broker.metadata.topic_settings import TopicSettingsTable
from broker.replication.appends.held_batches import HeldBatches
from broker.replication.durability.flusher import Flusher
from broker.replication.partition.partition import Partition
from broker.replication.reading.time_lookups import TimeLookups
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.sessions.fetch_session import FetchSessionCache
from broker.replication.waiting.waiting_requests import WaitingRequests
from broker.settings import BrokerSettings
from metalog.image.delta import MetadataDelta
from metalog.image.replay import Replayer
from protocol.api_keys import ApiKey
from protocol.batch.records import Producer, Record, build_batch
from protocol.codec import decode
from protocol.compression import Codec
from protocol.headers import decode_response_header
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.metadata.unfence_broker_record import UnfenceBrokerRecord
from protocol.transport.dispatch import (
    EncodedReply,
    FramedReply,
    HandlerTable,
    RequestContext,
    reply_parts,
)
from protocol.transport.long_requests import LongRequests
from runtime.clock import ManualClock
from runtime.config import NodeConfig, keys_quorum
from runtime.slices import SharedSlices
from runtime.tasks import Supervisor
from serving.long_lists import RULES
from storage.files import Files, MemoryFiles
from storage.log.manager import LogManager

NODE = 1
OTHER = 2
LISTENER = "PLAINTEXT"
LOG_DIR = "/data"


def topic_id(number: int) -> bytes:
    return b"topic id".ljust(12, b".") + number.to_bytes(4, "big")


class Peer:
    """The part of a connection that a handler uses."""

    client_id: str | None = "test"
    software_name = ""
    software_version = ""
    asked_epochs_ms = -math.inf
    closed_by_peer = False
    listener = LISTENER
    peer_host = "127.0.0.1"
    peer_port = 1234

    def __init__(self, peer_id: int = 1) -> None:
        self.id = peer_id
        self.callbacks: list[Callable[[], None]] = []
        self.behind_callbacks: list[Callable[[], None]] = []
        self.closed: str | None = None
        self.muted_ms: list[float] = []
        self.held: list[asyncio.Future[Any]] = []
        self.kept_bytes = 0

    def mute(self, wait_ms: float) -> None:
        self.muted_ms.append(wait_ms)

    def hold_until(self, done: asyncio.Future[Any]) -> None:
        self.held.append(done)

    def keep(self, size_bytes: int, until: asyncio.Future[Any]) -> None:
        def let_go(_: asyncio.Future[Any]) -> None:
            self.kept_bytes -= size_bytes

        self.kept_bytes += size_bytes
        until.add_done_callback(let_go)

    def add_close_callback(self, fn: Callable[[], None]) -> None:
        if self.closed is not None:
            fn()
        else:
            self.callbacks.append(fn)

    def remove_close_callback(self, fn: Callable[[], None]) -> None:
        if fn in self.callbacks:
            self.callbacks.remove(fn)

    def add_behind_callback(self, fn: Callable[[], None]) -> None:
        self.behind_callbacks.append(fn)

    def remove_behind_callback(self, fn: Callable[[], None]) -> None:
        if fn in self.behind_callbacks:
            self.behind_callbacks.remove(fn)

    def close(self, reason: str) -> None:
        self.closed = reason
        self.behind_callbacks = []
        callbacks, self.callbacks = self.callbacks, []
        for fn in callbacks:
            fn()


class NoController:
    """A controller channel without a controller, unless `answer` is set."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.moves = 0
        self.answer: Callable[[Any], Any] | None = None

    async def request(self, message: Any, timeout_ms: float, **_: int | None) -> Any:
        from broker.controller_link.channel import ControllerUnavailable

        self.requests.append(message)
        if self.answer is None:
            raise ControllerUnavailable("no controller")
        return self.answer(message)

    async def request_until(self, message: Any, deadline_ms: float) -> Any:
        return await self.request(message, 0)


class Harness:
    """A broker's data path; must be created inside a running loop."""

    def __init__(
        self,
        *,
        node_id: int = NODE,
        files: Files | None = None,
        log_dir: str = LOG_DIR,
        clock: Any = None,
        **props: str,
    ) -> None:
        """`clock` None is a ManualClock, `files` None are in memory."""
        self.clock = clock or ManualClock()
        self.rng = random.Random(7)
        self.files = files or MemoryFiles()
        self.files.mkdirs(log_dir)
        self.config = NodeConfig.parse(
            {
                "process.roles": "broker",
                "node.id": str(node_id),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "listeners": "PLAINTEXT://localhost:9092",
                "log.dirs": log_dir,
                **{key.replace("_", "."): value for key, value in props.items()},
            }
        )
        self.failures: list[str] = []
        self.supervisor = Supervisor(lambda name, _: self.failures.append(name))
        self.replayer = Replayer()
        self.metadata = MetadataCache(node_id, "cluster", self.rng)
        self.lost = LostBrokers(self.metadata, self.config[keys_quorum.BROKER_SESSION_TIMEOUT_MS])
        self.settings = TopicSettingsTable(self.config)
        self.logs = LogManager(
            self.files,
            log_dir,
            clock=self.clock,
            rng=self.rng,
            config_for=lambda topic: self.settings.of(topic).log,
        )
        self.logs.load()
        self.replicas = ReplicaManager(
            node_id=node_id,
            logs=self.logs,
            settings=self.settings,
            metadata=self.metadata,
            clock=self.clock,
            on_storage_failure=lambda what, _: self.failures.append(what),
            on_unforeseen=self.supervisor.survive,
        )
        self.connect(schedule=self.advance)
        self.controller: Any = NoController()
        self.waits = WaitingRequests(self.clock)
        static = BrokerSettings.of(self.config)
        self.context = BrokerContext(
            node_id=node_id,
            cluster_id="cluster",
            config=self.config,
            static=static,
            clock=self.clock,
            rng=self.rng,
            files=self.files,
            metadata=self.metadata,
            lost=self.lost,
            settings=self.settings,
            replicas=self.replicas,
            sessions=FetchSessionCache(static.fetch_sessions_max, self.rng),
            waits=self.waits,
            flusher=Flusher(self.supervisor, self.replicas.storage_failed, self.replicas.carry_out),
            time_lookups=TimeLookups(self.files),
            slices=SharedSlices(self.clock),
            held_batches=HeldBatches(
                self.replicas, files=self.files, clock=self.clock, supervisor=self.supervisor
            ),
            controller=cast(ControllerChannel, self.controller),
            elections=ChannelPool(lambda: cast(ControllerChannel, self.controller)),
            supervisor=self.supervisor,
        )
        self.connect(flush=self.context.flusher.want)
        self.peer = Peer()
        self.creator = TopicCreator(
            settings=AutoTopicSettings.of(self.config),
            metadata=self.metadata,
            controller=cast(ControllerChannel, self.controller),
            supervisor=self.supervisor,
            clock=self.clock,
        )
        self.table = HandlerTable()
        for api in (
            produce_api,
            fetch_api,
            list_offsets,
            offset_for_leader_epoch,
            describe_topic_partitions,
            describe_cluster,
            describe_configs,
            describe_log_dirs,
            describe_producers,
            delete_records,
            list_config_resources,
            describe_user_scram_credentials,
        ):
            api.register(self.table, self.context)
        metadata_api.register(self.table, self.context, self.creator)
        forwarder = forwarding.Forwarder(self.context)
        for changing in (alter_configs, incremental_alter_configs):
            changing.register(self.table, self.context, forwarder)
        forwarding.register(self.table, forwarder)
        LongRequests(self.clock, self.context.slices).guard(self.table, RULES)
        self.table.serve_api_versions()
        self._next_offset = 0
        self.replay(*registration(NODE), *registration(OTHER))

    def connect(self, **changes: Any) -> None:
        """Replace collaborators of the replicas."""
        self.replicas.connect(replace(self.replicas.collaborators, **changes))

    def advance(self) -> None:
        while self.replicas.advance(1000.0):
            pass

    # --- metadata -----------------------------------------------------------------------------

    def replay(self, *records: Any) -> None:
        before = self.replayer.image
        image = self.replayer.apply_batch(
            records, base_offset=self._next_offset, epoch=1, timestamp_ms=0
        )
        self._next_offset += len(records)
        delta = MetadataDelta(before, image, self.replayer.take_touched())
        self.metadata.publish(delta, image)
        self.lost.published(self.clock.monotonic_ms())
        self.replicas.reconfigure(self.settings.publish(delta, image))
        self.replicas.apply(delta)
        self.context.held_batches.roles_changed()
        self.context.sessions.followers_registered(delta.brokers, image.cluster.brokers)

    def create_topic(
        self,
        name: str = "t",
        *,
        number: int = 1,
        partitions: int = 1,
        replicas: Iterable[int] = (NODE,),
        isr: Iterable[int] | None = None,
        leader: int = NODE,
        configs: Mapping[str, str] | None = None,
    ) -> bytes:
        tid = topic_id(number)
        records: list[Any] = [
            ConfigRecord(resource_type=2, resource_name=name, name=key, value=value)
            for key, value in (configs or {}).items()
        ]
        records.append(TopicRecord(name=name, topic_id=tid))
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=tid,
                replicas=list(replicas),
                isr=list(replicas if isr is None else isr),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ]
        self.replay(*records)
        return tid

    def delete_topic(self, number: int = 1) -> None:
        self.replay(RemoveTopicRecord(topic_id=topic_id(number)))

    def change(self, *, number: int = 1, index: int = 0, **changes: Any) -> None:
        self.replay(PartitionChangeRecord(topic_id=topic_id(number), partition_id=index, **changes))

    def set_config(self, name: str, key: str, value: str | None, resource_type: int = 2) -> None:
        self.replay(
            ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        )

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        found = self.replicas.get(name, index)
        assert found is not None
        return found

    # --- requests -----------------------------------------------------------------------------

    def request_context(
        self, api: ApiKey, version: int, peer: Peer | None = None
    ) -> RequestContext:
        return RequestContext(
            peer or self.peer,
            api,
            version,
            1,
            "test",
            self.clock.monotonic_ms(),
            "User:ANONYMOUS",
            "127.0.0.1",
            LISTENER,
        )

    def call(self, message: Any, version: int | None = None, peer: Peer | None = None) -> Any:
        """Return the handler's return value: a response, a future, or None. A coroutine becomes a
        task, as in the transport."""
        api = ApiKey(message.API_KEY)
        entry = self.table.entries[api]
        chosen = entry.version_max if version is None else version
        reply = entry.handler(self.request_context(api, chosen, peer), message)
        if isinstance(reply, Coroutine):
            return self.supervisor.spawn(api.name, reply, fatal=False)
        return self.unframed(reply, chosen) if isinstance(reply, FramedReply) else reply

    def body(self, message: Any, version: int | None = None) -> Any:
        """Return the response decoded from its bytes, as a client of this version reads it."""
        api = ApiKey(message.API_KEY)
        entry = self.table.entries[api]
        chosen = entry.version_max if version is None else version
        reply = self.call(message, chosen)
        _, parts = reply_parts(reply, entry, chosen, 1)
        frame = b"".join(bytes(part) for part in parts)[4:]
        _, offset = decode_response_header(frame, api, chosen)
        decoded, end = decode(entry.response, frame, chosen, offset)
        assert end == len(frame)
        return decoded

    def produce(
        self,
        records: bytes | memoryview | None,
        *,
        topic: str = "t",
        index: int = 0,
        acks: int = -1,
        timeout_ms: int = 1000,
        version: int = 12,
        peer: Peer | None = None,
    ) -> Any:
        """Produce in version 12, which names the topic. Returns: the partition's result, a future,
        or None."""
        reply = self.call(
            produce_request(records, topic=topic, index=index, acks=acks, timeout_ms=timeout_ms),
            version,
            peer,
        )
        return reply.responses[0].partition_responses[0] if _is_response(reply) else reply

    @staticmethod
    def unframed(reply: FramedReply, version: int) -> ProduceResponse:
        """Return the response that a client decodes from a framed reply."""
        (frame,) = reply.parts
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        _, offset = decode_response_header(bytes(frame[4:]), ApiKey.PRODUCE, version)
        response, end = decode(ProduceResponse, bytes(frame[4:]), version, offset)
        assert end == len(frame) - 4
        return response

    def fetch(
        self,
        offset: int,
        *,
        topic: str = "t",
        index: int = 0,
        version: int = 12,
        peer: Peer | None = None,
        **fields: Any,
    ) -> Any:
        """Fetch one partition. Returns: its data, a future, or the whole response if it has no
        partition."""
        reply = self.call(fetch_request(offset, topic=topic, index=index, **fields), version, peer)
        if _is_response(reply) and reply.responses:
            return reply.responses[0].partitions[0]
        return reply


def _is_response(reply: Any) -> bool:
    return isinstance(reply, ProduceResponse | FetchResponse)


def registration(broker_id: int) -> list[Any]:
    return [
        RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=100 + broker_id,
            incarnation_id=bytes([broker_id] * 16),
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(
                    name=LISTENER, host=f"host{broker_id}", port=9090 + broker_id
                )
            ],
            fenced=True,
            rack=f"rack{broker_id}",
        ),
        UnfenceBrokerRecord(id=broker_id, epoch=100 + broker_id),
    ]


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp: int = 1_700_000_000_000,
    compression: Codec = Codec.NONE,
    producer: Producer | None = None,
) -> bytes:
    records = [
        Record(offset, timestamp + offset, key, value) for offset, value in enumerate(values)
    ]
    if producer is None:
        return build_batch(records, compression=compression)
    return build_batch(records, compression=compression, producer=producer)


def produce_request(
    records: bytes | memoryview | None,
    *,
    topic: str = "t",
    index: int = 0,
    acks: int = -1,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
            )
        ],
    )


def fetch_request(
    offset: int,
    *,
    topic: str = "t",
    index: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=current_leader_epoch,
                        last_fetched_epoch=last_fetched_epoch,
                    )
                ],
            )
        ],
        **fields,
    )


async def settle() -> None:
    """Run callbacks of the present loop iteration and of those that they schedule."""
    for _ in range(5):
        await asyncio.sleep(0)


__all__ = [
    "LISTENER",
    "LOG_DIR",
    "NODE",
    "OTHER",
    "EncodedReply",
    "Harness",
    "Peer",
    "batch",
    "fetch_request",
    "produce_request",
    "registration",
    "settle",
    "topic_id",
]
