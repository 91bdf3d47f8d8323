"""Connection of a command to its cluster, with error messages for users.

A command that fails prints Kafka's error name and message, and exits with 1.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import typer

from client.cluster_client import ClusterClient
from client.errors import BadAddress, ClientError
from kraftbox.cli.output import CommandFailed
from protocol.errors import ApiError, EncodeError, ProtocolError

T = TypeVar("T")

CLIENT_ID = "kraftbox-cli"
CONNECT_MS_MAX = 3_000

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KRAFTBOX_BOOTSTRAP",
        metavar="HOST[:PORT][,...]",
        help="Address of a broker; the default port is 9092.",
    ),
]
BOOTSTRAP_DEFAULT = "localhost:9092"


PORT_DEFAULT = 9092


def with_ports(bootstrap: str) -> str:
    """Return the addresses, each with a port."""
    entries = [entry.strip() for entry in bootstrap.split(",")]
    return ",".join(
        f"{entry}:{PORT_DEFAULT}" if entry and (":" not in entry or entry.endswith("]")) else entry
        for entry in entries
    )


class Bootstrap(str):
    """Bootstrap servers of a client, and whether it checks the cluster of each node (KIP-1242)."""

    check_cluster: bool

    def __new__(cls, servers: str, *, check_cluster: bool = True) -> Bootstrap:
        made = super().__new__(cls, servers)
        made.check_cluster = check_cluster
        return made


def run(bootstrap: str, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Connect, await `work`, disconnect. Raises CommandFailed."""
    check_cluster = bootstrap.check_cluster if isinstance(bootstrap, Bootstrap) else True
    bootstrap = with_ports(bootstrap)

    async def whole() -> T:
        async with await ClusterClient.connect(
            bootstrap, CLIENT_ID, CONNECT_MS_MAX, check_cluster=check_cluster
        ) as client:
            return await work(client)

    with in_words(bootstrap):
        return asyncio.run(whole())


@contextmanager
def in_words(bootstrap: str) -> Iterator[None]:
    """Translate errors of a connection to these addresses into CommandFailed."""
    try:
        yield
    except BadAddress as error:
        raise CommandFailed(f"--bootstrap-server: {error}") from None
    except ClientError as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot reach {bootstrap}: {_reason(error)}") from None
    except (ApiError, ProtocolError, EncodeError) as error:
        raise CommandFailed(f"{bootstrap}: {error or type(error).__name__}") from None


def _reason(error: OSError) -> str:
    """Return the reason of a failed connection, without asyncio's error numbers and addresses."""
    refused = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in refused)
    return ", ".join(reasons) or error.strerror or str(error) or "no answer in time"
