"""Connecting a command to its cluster, and the words for what goes wrong.

A command that fails prints Kafka's error name and message, and exits with 1.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from client.cluster_client import ClusterClient
from client.errors import ClientError
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
        metavar="HOST:PORT[,...]",
        help="Where the cluster is.",
    ),
]
BOOTSTRAP_DEFAULT = "localhost:9092"


def run(bootstrap: str, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Connect, do the work, disconnect; raises CommandFailed."""

    async def whole() -> T:
        async with await ClusterClient.connect(bootstrap, CLIENT_ID, CONNECT_MS_MAX) as client:
            return await work(client)

    try:
        return asyncio.run(whole())
    except ClientError as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot reach {bootstrap}: {_reason(error)}") from None
    except (ApiError, ProtocolError, EncodeError) as error:
        raise CommandFailed(f"{bootstrap}: {error or type(error).__name__}") from None


def _reason(error: OSError) -> str:
    """Why there is no connection, without the numbers and addresses that asyncio tells."""
    refused = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in refused)
    return ", ".join(reasons) or error.strerror or str(error) or "no answer in time"
