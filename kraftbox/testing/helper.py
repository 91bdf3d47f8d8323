"""`_testing`: the process that speaks Kafka's protocol for a test's process.

Questions come as frames on standard input, each is answered with one on standard output: its
`number`, and a `value` or an `error`. A question fails alone. It ends with its input.

Connections are kept from one question to the next, for as long as the same brokers run: to connect
anew would take longer than most questions.
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

Question = Mapping[str, Any]

STATUS_MS = 1_000.0
"""Tests rather wait for a slow machine than ask again."""


class Connected:
    """The client of the brokers that the last question named."""

    def __init__(self) -> None:
        self._bootstrap = ""
        self._client: ClusterClient | None = None

    async def to(self, bootstrap: str) -> ClusterClient:
        """A client of these brokers. Raises OSError."""
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
    """What `kraftbox status --json` shows."""
    from kraftbox.cli.cluster_view import snapshot
    from kraftbox.launcher.place import ClusterPlace

    return snapshot(ClusterPlace(Path(question["dir"])), STATUS_MS)


def check_configs(question: Question) -> None:
    """Whether a node could be started with these settings. Raises CommandFailed.

    A key that nobody knows is wrong here: a node only warns of it, where a test would not see it.
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


async def value_of(question: Question, connected: Connected) -> Any:
    """Raises CommandFailed."""
    if question["do"] == "status":
        return await asyncio.to_thread(status, question)
    if question["do"] == "check_configs":
        return check_configs(question)
    bootstrap = question["bootstrap"]
    with in_words(bootstrap):
        return await ANSWERS[question["do"]](await connected.to(bootstrap), question)


async def answer(question: Question, connected: Connected) -> bytes:
    """One frame."""
    number = question.get("number")
    try:
        return frames.encode({"number": number, "value": await value_of(question, connected)})
    except (CommandFailed, frames.FrameError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the next question may be another one
        traceback.print_exc()
        reason = f"the helper failed: {error!r}"
    return frames.encode({"number": number, "error": frames.clipped(reason)})


async def serve() -> None:
    """Until the input ends."""
    decoder = frames.Decoder()
    connected = Connected()
    loop = asyncio.get_running_loop()
    # A thread waits for questions: connections that end meanwhile are noticed.
    while data := await loop.run_in_executor(None, os.read, 0, 1 << 16):
        for question in decoder.feed(data):
            sys.stdout.buffer.write(await answer(question, connected))
            sys.stdout.buffer.flush()
    await connected.close()


def main() -> int:
    asyncio.run(serve())
    return 0
