"""A client that sends arbitrary bytes, and the nodes it connects to."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.messages import response_class
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Request, Response
from protocol.transport.exchange import FIRST_REQUEST_BYTES_MAX

TIMEOUT_S = 15.0
READY_S = 20.0

R = TypeVar("R", bound=Response)
_names = itertools.count(1)


class Closed(ConnectionError):
    """The node closed the connection where a response was expected."""


class Peer:
    """One blocking connection with requests and raw bytes."""

    def __init__(self, address: tuple[str, int], timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._has_sent = False

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # --- bytes ---------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Send a request; one too large to be a connection's first goes behind a small one."""
        if not self._has_sent:
            self._has_sent = True
            if len(body) > FIRST_REQUEST_BYTES_MAX:
                self.works()
        self.send(struct.pack(">i", len(body)) + body)

    def reset(self) -> None:
        """Close the connection with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def frame(self) -> bytes:
        """Return the next frame without its length. Raises: Closed if the node closes the
        connection."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                part = self.socket.recv(min(count - len(data), 1 << 20))
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed(f"{len(data)} of {count} bytes")
            data += part
        return data

    def is_closed(self) -> bool:
        """Wait for the end of the connection. Returns: False if data arrives before; raises on a
        timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # --- requests --------------------------------------------------------------------------------

    def ask_raw(
        self, api_key: int, version: int, body: bytes, *, client_id: bytes = b"\x00\x04test"
    ) -> int:
        """Send a request with a header of version 1 and this body. Returns: the correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_frame(struct.pack(">hhi", api_key, version, correlation_id) + client_id + body)
        return correlation_id

    def ask_later(
        self, request: Request[Any], version: int, *, client_id: str | None = "test"
    ) -> int:
        """Send a request without waiting. Returns: the correlation id."""
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(ApiKey(request.API_KEY), version, correlation_id, client_id)
        self.send_frame(encode_request_header(header) + encode(request, version))
        return correlation_id

    def answer(self, api: ApiKey, version: int) -> tuple[int, Any]:
        """Return correlation id and body of the next response."""
        frame = self.frame()
        correlation_id, offset = decode_response_header(frame, api, version)
        message, end = decode(response_class(api), frame, version, offset)
        assert end == len(frame)
        return correlation_id, message

    def ask(self, request: Request[R], version: int, *, client_id: str | None = "test") -> R:
        """Send one request. Returns: its response. Raises: Closed if the node closes the
        connection."""
        sent = self.ask_later(request, version, client_id=client_id)
        correlation_id, message = self.answer(ApiKey(request.API_KEY), version)
        assert correlation_id == sent
        answer: R = message
        return answer

    def works(self) -> None:
        """Check that the connection is still served."""
        self.ask(MetadataRequest(topics=[]), 12)


@dataclass
class Topic:
    """A topic made for a test."""

    name: str
    id: bytes


@dataclass
class Target:
    """A node under test. `is_kafka` is set for Apache Kafka, the oracle."""

    address: tuple[str, int]
    is_kafka: bool
    topics: list[str] = field(default_factory=list)

    def connect(self, timeout_s: float = TIMEOUT_S) -> Peer:
        return Peer(self.address, timeout_s)

    def new_name(self, prefix: str = "topic") -> str:
        return f"{prefix}-{next(_names)}"

    def topic(
        self,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Topic:
        """Create a topic and wait until its partitions have leaders."""
        name = name or self.new_name()
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=10_000,
        )
        with self.connect() as peer:
            (result,) = peer.ask(request, 7).topics
            assert result.error_code == 0, result
            self.wait_for_leaders(peer, name, partitions)
        return Topic(name, result.topic_id)

    def delete(self, topic: Topic) -> None:
        """Delete a topic and wait until the node's metadata lacks it."""
        deadline = time.monotonic() + READY_S
        delete = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=topic.name)], timeout_ms=10_000
        )
        ask = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic.name)],
            allow_auto_topic_creation=False,
        )
        with self.connect() as peer:
            assert peer.ask(delete, 6).responses[0].error_code == 0
            while not peer.ask(ask, 12).topics[0].error_code:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def wait_for_leaders(self, peer: Peer, name: str, partitions: int) -> None:
        """Wait until the node returns offsets for every partition."""
        deadline = time.monotonic() + READY_S
        topic = ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=-1)
                for n in range(partitions)
            ],
        )
        while True:
            (answer,) = peer.ask(ListOffsetsRequest(topics=[topic]), 7).topics
            if not any(one.error_code for one in answer.partitions):
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)

    def produce(
        self,
        topic: Topic,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 12,
    ) -> ProduceResponse.PartitionProduceResponse:
        """Produce a batch. Returns: the partition's result."""
        with self.connect() as peer:
            request = produce_request({(topic.name, partition): records}, acks=acks)
            if version >= 13:
                request.topic_data[0].topic_id = topic.id
            (one,) = peer.ask(request, version).responses
            (result,) = one.partition_responses
            return result


def produce_request(
    batches: Mapping[tuple[str, int], bytes | None], *, acks: int = -1, timeout_ms: int = 10_000
) -> ProduceRequest:
    """Return a Produce request with one entry per (topic, partition), in this order."""
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    for (name, partition), records in batches.items():
        topic = topics.setdefault(name, ProduceRequest.TopicProduceData(name=name))
        topic.partition_data.append(
            ProduceRequest.PartitionProduceData(index=partition, records=records)
        )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def fetch_request(
    topic: Topic,
    *,
    offset: int = 0,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """Return a Fetch request for one partition, outside a session unless `fields` set one."""
    fields.setdefault("session_id", 0)
    fields.setdefault("session_epoch", -1)
    fields.setdefault("max_bytes", 1 << 20)
    return FetchRequest(
        topics=[
            FetchRequest.FetchTopic(
                topic=topic.name,
                topic_id=topic.id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=leader_epoch,
                    )
                ],
            )
        ],
        **fields,
    )
