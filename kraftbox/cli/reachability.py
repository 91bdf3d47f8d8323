"""Check of bootstrap addresses before the first request, so that a command fails at once.

A Kafka client retries refused connections until its timeout, and reports an answer in another
protocol as a broken frame. A person who mistyped a port needs the reason within a moment. So every
address receives one ApiVersions request in parallel, and the first that answers in Kafka's protocol
is enough. An address that answers otherwise, closes the connection or stays silent gets an HTTP
request and a TLS ClientHello, to find out which protocol it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from client.addresses import Address

ANSWER_MS_MAX = 3_000
"""How long an address that accepts a connection may take to answer."""
SILENCE_MS = 500
"""After this time without an answer, the other protocols are tried."""
RETRY_MS = 100
NOTICE_MS = 1_500
"""After this time the command reports which address it waits for."""
HEAD_BYTES = 8
CORRELATION_ID = 0x6B62

# ApiVersions version 0, which every broker answers: size, API key, version, correlation ID, client.
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1)
HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
_TLS_ALERT, _TLS_HANDSHAKE = b"\x15\x03", b"\x16\x03"


class Obstacle(NamedTuple):
    """Why an address cannot be used. `lasting` is false if waiting may remove it."""

    reason: str
    lasting: bool = False


class Unreachable(Exception):
    """No address answers in Kafka's protocol; the message has the reason of each."""


SILENT = Obstacle(
    f"accepts connections and has not answered for {ANSWER_MS_MAX / 1000:g} s: is the broker "
    "paused or overloaded?"
)
HTTP = Obstacle("answers HTTP, not Kafka: is it the metrics port?", lasting=True)
TLS = Obstacle(
    "answers TLS, and kraftbox connects without encryption: use a PLAINTEXT listener", lasting=True
)
UNKNOWN = Obstacle("answers, but not in the protocol of Kafka", lasting=True)
CLOSED = Obstacle("closes the connection without an answer: not a Kafka listener, or it is ending")


async def answering_first(
    addresses: Sequence[Address], wait_ms: float, notice: Callable[[str], None]
) -> list[Address]:
    """Return the addresses, beginning with one that answers in Kafka's protocol.

    Args:
        wait_ms: how long to retry while no address answers; 0 to fail at once.
        notice: called once with a line for the user if the check takes longer than NOTICE_MS.

    Raises:
        Unreachable: no address answers, and waiting is over or cannot help.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    known: dict[Address, Obstacle] = {}
    timer = loop.call_later(NOTICE_MS / 1000, lambda: notice(_waiting(addresses, known)))
    try:
        while True:
            found = await _first(addresses, known)
            if found is not None:
                return [found, *(one for one in addresses if one != found)]
            lasting = all(known[one].lasting for one in addresses)
            if lasting or loop.time() + RETRY_MS / 1000 > deadline:
                raise Unreachable(explained(known))
            await asyncio.sleep(RETRY_MS / 1000)
    finally:
        timer.cancel()


async def _first(addresses: Sequence[Address], known: dict[Address, Obstacle]) -> Address | None:
    """Return the first address that answers; store the obstacles of the others in `known`."""
    tasks = {asyncio.ensure_future(obstacle_at(one)): one for one in addresses}
    try:
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                found = task.result()
                if found is None:
                    return tasks[task]
                known[tasks[task]] = found
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def explained(known: dict[Address, Obstacle]) -> str:
    """Return the addresses with their reasons; those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for (host, port), found in known.items():
        by_reason.setdefault(found.reason, []).append(f"{host}:{port}")
    return "; ".join(f"{','.join(names)}: {reason}" for reason, names in by_reason.items())


def _waiting(addresses: Sequence[Address], known: dict[Address, Obstacle]) -> str:
    silent = [f"{host}:{port}" for host, port in addresses if (host, port) not in known]
    seen = f" ({explained(known)})" if known else ""
    return f"waiting for {','.join(silent) or 'a broker'}{seen}"


async def obstacle_at(address: Address) -> Obstacle | None:
    """Send ApiVersions to an address; return None if it answers as a broker does."""
    try:
        head = await _ask(address, API_VERSIONS, SILENCE_MS)
        if head is not None and is_kafka(head):
            return None
        foreign = named(head or b"") or await _foreign(address)
        if foreign is not None:
            return foreign
        if head is None:
            head = await _ask(address, API_VERSIONS, ANSWER_MS_MAX - SILENCE_MS)
            if head is None:
                return SILENT
            if is_kafka(head):
                return None
    except TimeoutError:
        return Obstacle("does not answer: the host is down, or a firewall drops the packets")
    except OSError as error:
        return refusal(error)
    return (named(head) or UNKNOWN) if head else CLOSED


async def _foreign(address: Address) -> Obstacle | None:
    """Return the other protocol that an address has, None if it is not HTTP or TLS."""
    heads = await asyncio.gather(
        _ask(address, HTTP_REQUEST, SILENCE_MS),
        _ask(address, client_hello(), SILENCE_MS),
        return_exceptions=True,
    )
    return next(
        (found for head in heads if isinstance(head, bytes) and (found := named(head))), None
    )


async def _ask(address: Address, request: bytes, silence_ms: float) -> bytes | None:
    """Return the first bytes of the answer: empty if the peer closes, None if it stays silent.

    Raises OSError if no connection is possible, TimeoutError if none is accepted in time.
    """
    async with asyncio.timeout(ANSWER_MS_MAX / 1000):
        reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(silence_ms / 1000):
            writer.write(request)
            return await reader.readexactly(HEAD_BYTES)
    except TimeoutError:
        return None
    except asyncio.IncompleteReadError as error:
        return bytes(error.partial)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def is_kafka(head: bytes) -> bool:
    """Return whether these are the first bytes of an answer to API_VERSIONS."""
    return len(head) == HEAD_BYTES and head[4:] == CORRELATION_ID.to_bytes(4, "big")


def named(head: bytes) -> Obstacle | None:
    """Return the protocol that an answer shows, None for an unknown one."""
    if head.startswith(b"HTTP"):
        return HTTP
    if head.startswith((_TLS_ALERT, _TLS_HANDSHAKE)):
        return TLS
    if head.startswith(b"SSH-"):
        return Obstacle("answers SSH, not Kafka", lasting=True)
    return None


def client_hello() -> bytes:
    """Return the first bytes that a TLS client sends."""
    import ssl  # only for an address that does not answer as expected

    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def refusal(error: OSError) -> Obstacle:
    """Return the reason of a failed connection, without asyncio's error numbers and addresses."""
    if isinstance(error, socket.gaierror):
        return Obstacle(f"unknown host: {error.strerror}")
    refused = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in refused)
    return Obstacle(", ".join(reasons) or error.strerror or str(error) or "no answer")
