"""`kraftbox elect`: elections of leaders that an operator asks for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from client.admin import Admin
from client.elections import ElectionResult, ElectionType
from client.leaders import TopicPartition
from kraftbox.cli import explanation
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.election_file import INT32_MAX, read_election_file
from kraftbox.cli.output import FAILED, JsonFlag, say, say_json
from protocol.errors import ErrorCode

TIMEOUT_S_MAX = 3_600.0


class Kind(Enum):
    """Types of elections, as options spell them."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    partitions: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC-PARTITION]...", show_default=False)
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(
            "--type",
            help="preferred: the first replica, where it is in sync; unclean: any replica, where "
            "no other is left: what only the others had is lost.",
        ),
    ] = Kind.PREFERRED,
    everything: Annotated[
        bool, typer.Option("--all", help="Every partition that needs the election.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help='JSON: {"partitions": [{"topic": "t", "partition": 0}]}',
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="TOPIC-PARTITION",
            help="Elect nobody: say who may lead, who may not and why, and what is waited for.",
        ),
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0.1, max=TIMEOUT_S_MAX, help="Seconds to wait."),
    ] = 30.0,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Elect leaders. Prints a line per partition; exit code 1 if an election failed."""
    if sum((bool(partitions), everything, file is not None, explain is not None)) != 1:
        raise typer.BadParameter(
            "give partitions, --all, --file or --explain, and only one of them"
        )
    if explain is not None:
        explanation.show(topic_partition(explain), bootstrap, timeout_s, as_json=as_json)
        return
    wanted: list[TopicPartition] | None = None
    if file is not None:
        wanted = list(read_election_file(file))
    elif partitions:
        wanted = [topic_partition(text) for text in partitions]
    results = run(
        bootstrap,
        lambda client: Admin(client, timeout_s * 1000).elect_leaders(
            ElectionType[kind.name], wanted
        ),
    )
    _tell(results, as_json=as_json)
    if any(result.failed for result in results.values()):
        raise typer.Exit(FAILED)


def _tell(results: Mapping[TopicPartition, ElectionResult], *, as_json: bool) -> None:
    if not as_json:
        for (topic, index), result in results.items():
            say(f"{topic}-{index}: {outcome(result)}")
        return
    say_json(
        [
            {
                "topic": topic,
                "partition": index,
                "elected": result.number == ErrorCode.NONE,
                "error": None if not result.number else result.error.name,
                "message": result.message or None,
            }
            for (topic, index), result in results.items()
        ]
    )


def topic_partition(text: str) -> TopicPartition:
    """`orders-0` as topic and partition. Raises BadParameter."""
    topic, dash, index = text.rpartition("-")
    if not topic or not dash or not index.isdecimal() or int(index) > INT32_MAX:
        raise typer.BadParameter(f"{text!r} is not TOPIC-PARTITION, as orders-0 is")
    return topic, int(index)


def outcome(result: ElectionResult) -> str:
    """What became of one election, for people."""
    if result.number == ErrorCode.NONE:
        return "elected"
    if result.number == ErrorCode.ELECTION_NOT_NEEDED:
        return "not needed" + (f": {result.message}" if result.message else "")
    return result.reason
