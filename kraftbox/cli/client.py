"""Connections and errors that the commands share.

A command that fails prints Kafka's error name and message, and exits with 1.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Annotated, TypeVar

import typer

from client.cluster_client import ClusterClient
from kraftbox.cli.output import CommandFailed
from protocol.errors import ApiError, EncodeError, ErrorCode, ProtocolError
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataResponse
from protocol.schema import Request, Response, Struct

T = TypeVar("T")
R = TypeVar("R", bound=Response)

CLIENT_ID = "kraftbox-cli"
REQUEST_MS_MAX = 30_000
CONNECT_MS_MAX = 3_000
RETRIES_MAX = 50
RETRY_MS = 100

_MOVING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KRAFTBOX_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="Where the cluster is.",
    ),
]
BOOTSTRAP_DEFAULT = "localhost:9092"


def run(bootstrap: str, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, do the work, disconnect; raises CommandFailed."""

    async def whole() -> T:
        addresses = parse_bootstrap(bootstrap)
        cluster = await ClusterClient.connect(addresses, CLIENT_ID, CONNECT_MS_MAX)
        try:
            return await work(Client(cluster))
        finally:
            await cluster.close()

    try:
        return asyncio.run(whole())
    except OSError as error:
        raise CommandFailed(f"cannot reach {bootstrap}: {_reason(error)}") from None
    except (ApiError, ProtocolError, EncodeError) as error:
        raise CommandFailed(f"{bootstrap}: {error or type(error).__name__}") from None


def _reason(error: OSError) -> str:
    """Why there is no connection, without the numbers and addresses that asyncio tells."""
    refused = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in refused)
    return ", ".join(reasons) or error.strerror or str(error) or "no answer in time"


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,...`; raises CommandFailed."""
    found = []
    for entry in text.split(","):
        host, colon, port = entry.strip().rpartition(":")
        if not colon or not port.isdigit():
            raise CommandFailed(f"{entry.strip()!r} is not HOST:PORT")
        found.append((host.strip("[]") or "localhost", int(port)))
    return found


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise CommandFailed unless `code` is no error."""
    if code == ErrorCode.NONE:
        return
    if code not in ErrorCode._value2member_map_:
        raise CommandFailed(f"{what}: error {code}")
    error = ErrorCode(code)
    raise CommandFailed(f"{what}: {error.name}: {message or error.text}")


class Client:
    """What the commands ask of a cluster, over `ClusterClient`."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster

    async def send(
        self, request: Request[R], *, node: int | None = None, version: int | None = None
    ) -> R:
        """Ask one node, by default whichever answers first. `version` where the request's shape
        fits only one; otherwise the highest that both sides know.

        Raises OSError (ConnectionLost too), ApiError, ProtocolError.
        """
        if node is None:
            return await self.cluster.request_any(request, REQUEST_MS_MAX, version=version)
        if node not in self.cluster.cache.brokers:
            await self.cluster.metadata([])
        return await self.cluster.request_broker(node, request, REQUEST_MS_MAX, version=version)

    async def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> MetadataResponse:
        """Brokers and topics (all of them for None)."""
        return await self.cluster.metadata(topics, REQUEST_MS_MAX, create=create)

    async def topic(
        self, name: str, *, create: bool = False
    ) -> MetadataResponse.MetadataResponseTopic:
        """One topic with a leader for every partition; waits a little for one that is new.

        Raises CommandFailed.
        """
        for _ in range(RETRIES_MAX):
            found = (await self.metadata([name], create=create)).topics[0]
            error = found.error_code or next(
                (p.error_code for p in found.partitions if p.leader_id < 0), 0
            )
            waiting = error == ErrorCode.LEADER_NOT_AVAILABLE or (
                create and error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if not waiting:
                break
            await asyncio.sleep(RETRY_MS / 1000)
        check(error, f"topic {name}")
        return found

    async def coordinator(self, group: str) -> int:
        """The node that coordinates a group; waits while the offsets topic is created."""
        code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        message: str | None = None
        for _ in range(RETRIES_MAX):
            reply = await self.send(FindCoordinatorRequest(coordinator_keys=[group]))
            found = reply.coordinators[0]
            code, message = found.error_code, found.error_message
            if code == ErrorCode.NONE:
                return found.node_id
            if code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                break
            await asyncio.sleep(RETRY_MS / 1000)
        check(code, f"group {group}", message)
        raise AssertionError("not reached: the loop ends with an error")

    async def ask_coordinator(
        self, group: str, request: Request[R], *, version: int | None = None
    ) -> R:
        """Ask the node that coordinates a group; again while it moves or loads."""
        for _ in range(RETRIES_MAX - 1):
            reply = await self.send(request, node=await self.coordinator(group), version=version)
            if not _MOVING & set(_error_codes(reply)):
                return reply
            await asyncio.sleep(RETRY_MS / 1000)
        return await self.send(request, node=await self.coordinator(group), version=version)


def _error_codes(message: Struct) -> Iterator[int]:
    """Every error code in a response, wherever it stands."""
    for name, value in message.items():
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, Struct):
                    yield from _error_codes(entry)
