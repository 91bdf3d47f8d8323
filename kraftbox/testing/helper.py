"""`_testing`: the helper process of a test, which uses Kafka's protocol.

It reads requests as frames from standard input and writes one frame per request to standard output:
the request's `number`, and a `value` or an `error`. A request that fails does not affect others.
The process ends with its input.

The client is kept between requests while the same brokers run, because connecting would take longer
than most requests.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from client.cluster_client import ClusterClient
from kraftbox.cli.connect import CLIENT_ID, CONNECT_MS_MAX, in_words
from kraftbox.cli.output import CommandFailed
from kraftbox.launcher import frames
from kraftbox.testing.answers import ANSWERS
from kraftbox.testing.operations import change_link

Question = Mapping[str, Any]

STATUS_MS = 1_000.0
"""Long, because a test should wait for a slow machine instead of polling again."""


class Connected:
    """The client of the brokers that the last request named."""

    def __init__(self) -> None:
        self._bootstrap = ""
        self._client: ClusterClient | None = None

    async def to(self, bootstrap: str) -> ClusterClient:
        """Return a client of these brokers. Raises OSError."""
        if self._client is None or self._bootstrap != bootstrap:
            await self.close()
            self._client = await ClusterClient.connect(bootstrap, CLIENT_ID, CONNECT_MS_MAX)
            self._bootstrap = bootstrap
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def status(question: Question) -> dict[str, Any]:
    """Return the document of `kraftbox status --json`."""
    from kraftbox.cli.cluster_view import snapshot
    from kraftbox.launcher.place import ClusterPlace

    return snapshot(ClusterPlace(Path(question["dir"])), STATUS_MS)


def check_configs(question: Question) -> list[str]:
    """Check that a node accepts these settings; return a line for each one without effect.

    Unknown keys are refused: a node only logs a warning, which a test would not see. Raises
    CommandFailed.
    """
    from kraftbox.launcher import plan
    from runtime.config import ConfigError, NodeConfig

    shape = plan.ONE_NODE
    properties = plan.node_plans(
        plan.planned_nodes(shape), "", {1: plan.Ports(0, 0, 0)}, question["configs"]
    )[0].properties
    try:
        plan.check_settings(question["configs"], plan.Shape())
        warnings = NodeConfig.parse(properties).warnings
    except (ConfigError, plan.PlanRefused) as error:
        raise CommandFailed(str(error)) from None
    unknown = [text for text in warnings if "not a known configuration key" in text]
    if unknown:
        raise CommandFailed("; ".join(unknown))
    return warnings


async def value_of(question: Question, connected: Connected) -> Any:
    """Handle a request and return its value. Raises CommandFailed."""
    if question["do"] == "status":
        return await asyncio.to_thread(status, question)
    if question["do"] == "check_configs":
        return check_configs(question)
    if question["do"] in ("link", "heal_links"):
        return await asyncio.to_thread(change_link, question)
    bootstrap = question["bootstrap"]
    with in_words(bootstrap):
        return await ANSWERS[question["do"]](await connected.to(bootstrap), question)


async def answer(question: Question, connected: Connected) -> bytes:
    """Handle a request and return the frame of its answer."""
    number = question.get("number")
    try:
        return frames.encode({"number": number, "value": await value_of(question, connected)})
    except (CommandFailed, frames.FrameError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the helper must serve the next request
        traceback.print_exc()
        reason = f"the helper failed: {error!r}"
    return frames.encode({"number": number, "error": frames.clipped(reason)})


async def serve() -> None:
    """Answer requests until the input ends."""
    decoder = frames.Decoder()
    connected = Connected()
    loop = asyncio.get_running_loop()
    # Reading in a thread keeps the event loop free to notice connections that close.
    while data := await loop.run_in_executor(None, os.read, 0, 1 << 16):
        for question in decoder.feed(data):
            sys.stdout.buffer.write(await answer(question, connected))
            sys.stdout.buffer.flush()
    await connected.close()


def main() -> int:
    asyncio.run(serve())
    return 0
