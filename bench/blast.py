"""A load without client limits: produce requests encoded once and sent at C speed.

    python -m bench.blast BOOTSTRAP TOPIC [--batch-bytes 65536] [--connections 4] [--seconds 5]

Each connection keeps `--in-flight` requests in flight. Responses are counted by their length
prefix, and only the first one is checked for an error. Prints JSON: MB/s of record batches,
requests/s, and with `--pid` the CPU of that process, per GB and per request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import time
from functools import partial
from typing import Any

import uvloop

from bench.nodes import cpu_seconds
from protocol.api_keys import ApiKey
from protocol.batch.header import HEADER_BYTES
from protocol.batch.records import Record, build_batch
from protocol.codec import decode, encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.produce import ProduceRequest, ProduceResponse
from testkit.processes.ending import end_on_sigterm

VERSION = 11
RECORD_BYTES = 1024
RECORD_OVERHEAD_BYTES = 9
_JOINED_BYTES = 4096
_CORRELATION_AT = 8  # size, api key, api version


class Blaster(asyncio.Protocol):
    """One connection: sends the same frame again for each response."""

    def __init__(self, frame: bytes, in_flight: int) -> None:
        self._frame = bytearray(frame)
        self._in_flight = in_flight
        self._left = b""
        self._sent = 0
        self.replies = 0
        self.stopping = False
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=1 << 30)
        self._send(self._in_flight)

    def _send(self, count: int) -> None:
        frames = []
        for _ in range(count):
            self._sent += 1
            struct.pack_into(">i", self._frame, _CORRELATION_AT, self._sent)
            frames.append(bytes(self._frame))
        # One call for small frames, as from a client with several requests ready.
        if len(self._frame) < _JOINED_BYTES:
            self._transport.write(b"".join(frames))
        else:
            self._transport.writelines(frames)

    def data_received(self, data: bytes) -> None:
        data = self._left + data if self._left else data
        at = count = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            if self.replies == count == 0:
                check(data[at + 4 : end])
            count += 1
            at = end
        self._left = data[at:]
        self.replies += count
        if count and not self.stopping:
            self._send(count)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(error)


def check(reply: bytes) -> None:
    """Exit at a response with an error."""
    # In a flexible version, correlation ID and an empty tag section precede the body.
    response, _ = decode(ProduceResponse, reply, VERSION, 5)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise SystemExit(f"the broker answers error {code}")


def request_frame(topic: str, partition: int, batch_bytes: int, acks: int) -> bytes:
    """Return a Produce frame with a batch of about `batch_bytes`.

    It has records of 1 KB, or one smaller record.
    """
    batch = record_batch(batch_bytes)
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    header = RequestHeader(ApiKey.PRODUCE, VERSION, 0, "blast")
    body = encode_request_header(header) + encode(request, VERSION)
    return struct.pack(">i", len(body)) + body


def record_batch(batch_bytes: int) -> bytes:
    """Return a batch as described in `request_frame`."""
    room = max(RECORD_OVERHEAD_BYTES + 1, batch_bytes - HEADER_BYTES)
    value = bytes(min(RECORD_BYTES, room) - RECORD_OVERHEAD_BYTES)
    count = max(1, room // RECORD_BYTES)
    now_ms = int(time.time() * 1000)
    return build_batch(
        [Record(offset=i, timestamp=now_ms, key=None, value=value) for i in range(count)]
    )


async def blast(options: argparse.Namespace) -> dict[str, float]:
    """Run the load and return the figures."""
    host, _, port = options.bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()
    connections = []
    for number in range(options.connections):
        partition = number % options.partitions
        frame = request_frame(options.topic, partition, options.batch_bytes, options.acks)
        _, protocol = await loop.create_connection(
            partial(Blaster, frame, options.in_flight), host, int(port)
        )
        connections.append(protocol)
    await asyncio.sleep(options.warm_up)
    begin, before = time.monotonic(), sum(c.replies for c in connections)
    cpu_before = cpu_seconds(options.pid) if options.pid else 0.0
    await asyncio.wait([c.lost for c in connections], timeout=options.seconds)
    replies = sum(c.replies for c in connections) - before
    cpu_s = cpu_seconds(options.pid) - cpu_before if options.pid else 0.0
    took_s = time.monotonic() - begin
    for connection in connections:
        connection.stopping = True
        connection._transport.abort()
    sent_bytes = replies * len(record_batch(options.batch_bytes))
    return {
        "mb_per_s": sent_bytes / 1e6 / took_s,
        "requests_per_s": replies / took_s,
        "cpu_s_per_gb": cpu_s / (sent_bytes / 1e9),
        "cpu_us_per_request": cpu_s / replies * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--batch-bytes", type=int, default=65_536)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--acks", type=int, default=-1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--pid", type=int, default=0, help="process id of the broker")
    uvloop.install()
    print(json.dumps(asyncio.run(blast(parser.parse_args()))))


if __name__ == "__main__":
    end_on_sigterm()
    main()
