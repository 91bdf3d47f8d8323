"""`kraftbox reassign`: move replicas to other brokers (KIP-455)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.leaders import TopicPartition
from kraftbox.cli import completion
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.elect import topic_partition
from kraftbox.cli.output import CommandFailed, JsonFlag, say_json, table

POLL_S = 0.2


class Moving(NamedTuple):
    """An ongoing reassignment: the current replicas, the added and the removed ones."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


def reassign(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC-PARTITION]...",
            autocompletion=completion.partitions,
            show_default=False,
            help=(
                "Partitions to move, such as orders-0; without any, ongoing "
                "reassignments are listed."
            ),
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ID,ID,...",
            help="New replicas: broker ids; the first is the preferred leader.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the ongoing reassignment of these partitions.")
    ] = False,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="Wait at most this many seconds for the reassignment to finish.",
        ),
    ] = None,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Move partitions to other brokers, or list the ongoing moves.

    The command starts a move and returns. --wait waits for the end of the move and exits with 1 if
    it is still ongoing afterwards.
    """
    partitions = [topic_partition(name) for name in names or ()]
    if partitions and (to is not None) == cancel:
        raise typer.BadParameter("give partitions with exactly one of --to, --cancel")
    if not partitions and (to is not None or cancel or wait_s is not None):
        raise typer.BadParameter("name partitions, such as orders-0")
    brokers = None if to is None else _brokers(to)

    async def work(client: ClusterClient) -> list[Moving]:
        admin = Admin(client)
        for partition in partitions:
            await admin.reassign(partition, brokers)
        deadline = time.monotonic() + (wait_s or 0.0)
        while True:
            going_on = await moves(admin, partitions)
            if not going_on or time.monotonic() >= deadline:
                return going_on
            await asyncio.sleep(POLL_S)

    going_on = run(bootstrap, work)
    if as_json:
        say_json([one._asdict() for one in going_on])
    else:
        columns = ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING")
        table(columns, [(one.topic, one.partition, *map(_ids, one[2:])) for one in going_on])
    if wait_s is not None and going_on:
        raise CommandFailed(f"reassignment not finished after {wait_s:g} s")


async def moves(admin: Admin, partitions: Sequence[TopicPartition]) -> list[Moving]:
    """Return the ongoing reassignments of these partitions, or of all if `partitions` is empty."""
    return [
        Moving(
            topic.name,
            one.partition_index,
            one.replicas,
            one.adding_replicas,
            one.removing_replicas,
        )
        for topic in await admin.reassignments()
        for one in topic.partitions
        if not partitions or (topic.name, one.partition_index) in partitions
    ]


def _brokers(text: str) -> list[int]:
    ids = text.split(",")
    if not all(one.strip().isdecimal() for one in ids):
        raise typer.BadParameter(f"expected ID,ID,..., got {text!r}", param_hint="--to")
    return [int(one) for one in ids]


def _ids(ids: list[int]) -> str | None:
    return ",".join(map(str, ids)) or None
