"""CPU cost of the transport: `python bench/transport.py`.

Prints microseconds of CPU per request for
- a frame through parse, dispatch, encode and write without a socket (the budget is 10 us),
- a Produce of one 64 KiB batch in the same way, validated and its response encoded,
- pipelined one-record requests over a loopback socket (client and server in one process).
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from protocol.api_keys import ApiKey
from protocol.batch import Record, build_batch
from protocol.batch.validate import AppendRules, validate_produce
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import ApiMessage
from protocol.transport.client import Connection
from protocol.transport.connection import ServerConnection
from protocol.transport.dispatch import HandlerTable, RequestContext
from protocol.transport.server import Server
from runtime.clock import SystemClock

NOW_MS = 1_700_000_000_000
RULES = AppendRules()


class NullTransport(asyncio.Transport):
    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def heartbeat(_: RequestContext, __: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


def produce(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
    topics = []
    for topic in request.topic_data:
        partitions = []
        for one in topic.partition_data:
            assert isinstance(one.records, memoryview)
            validate_produce(one.records, context.api_version, RULES, NOW_MS)
            partitions.append(ProduceResponse.PartitionProduceResponse(index=one.index))
        topics.append(
            ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=partitions)
        )
    return ProduceResponse(responses=topics)


def table() -> HandlerTable:
    handlers = HandlerTable()
    handlers.serve_api_versions()
    handlers.register(ApiKey.HEARTBEAT, heartbeat)
    handlers.register(ApiKey.PRODUCE, produce)
    return handlers


def frame(message: ApiMessage, version: int) -> bytes:
    header = RequestHeader(ApiKey(message.API_KEY), version, 1, "bench")
    body = encode_request_header(header) + encode(message, version)
    return struct.pack(">i", len(body)) + body


def produce_request(value: bytes) -> ProduceRequest:
    batch = build_batch([Record(timestamp=NOW_MS, value=value)])
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="bench", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


async def without_socket(data: bytes, times: int) -> float:
    server = Server(table(), clock=SystemClock(), listener="BENCH")
    connection = ServerConnection(server, 1)
    connection.connection_made(NullTransport())
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(times):
            at = 0
            while at < len(data):
                room = connection.get_buffer(-1)
                taken = min(len(room), len(data) - at)
                room[:taken] = data[at : at + taken]
                connection.buffer_updated(taken)
                at += taken
        best = min(best, time.process_time() - started)
    return best / times * 1e6


async def over_a_socket(message: ApiMessage, requests: int, window: int) -> float:
    server = Server(table(), clock=SystemClock(), listener="BENCH")
    host, port = await server.start("127.0.0.1", 0)
    client = await Connection.connect(host, port, "bench")
    started = time.process_time()
    for _ in range(requests // window):
        await asyncio.gather(*(client.send(message) for _ in range(window)))  # type: ignore[arg-type]
    spent = time.process_time() - started
    await client.close()
    await server.close()
    return spent / requests * 1e6


async def main() -> None:
    small = frame(HeartbeatRequest(group_id="bench"), 4)
    one_record = frame(produce_request(b"x" * 100), 9)
    batch = frame(produce_request(os.urandom(64 * 1024)), 9)
    rows = (
        ("heartbeat, no socket", await without_socket(small, 20_000)),
        ("produce of one record, no socket", await without_socket(one_record, 20_000)),
        ("produce of 64 KiB, no socket", await without_socket(batch, 5_000)),
        (
            "heartbeat over a socket, both ends, 100 in flight",
            await over_a_socket(HeartbeatRequest(group_id="bench"), 20_000, 100),
        ),
    )
    for name, cost_us in rows:
        print(f"{name:55s} {cost_us:8.1f} us")


if __name__ == "__main__":
    uvloop.run(main())
