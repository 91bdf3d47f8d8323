"""`kraftbox elect`: leader elections that an operator requests."""

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
from kraftbox.cli.election_file import INT32_MAX, DesiredLeaders, leaders_of, read_election_file
from kraftbox.cli.output import FAILED, JsonFlag, say, say_json
from protocol.errors import ErrorCode

TIMEOUT_S_MAX = 3_600.0


class Kind(Enum):
    """Election types with their option values."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    LONGEST_LOG_AGGRESSIVE = "longest-log-aggressive"
    LONGEST_LOG_BALANCED = "longest-log-balanced"
    DESIGNATION = "designation"


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC-PARTITION]...",
        show_default=False,
        help="Partitions to elect, such as orders-0.",
    ),
]
KindOption = Annotated[
    Kind,
    typer.Option(
        "--type",
        help=(
            "preferred: the first replica, if it is in sync. All other types are "
            "for partitions without a leader, and may lose records that the elected "
            "replica lacks. unclean: any replica. longest-log-aggressive: the "
            "longest log of the live replicas. longest-log-balanced: the longest "
            "log, after all replicas that may have every record are back. "
            "designation: the broker of --leader."
        ),
    ),
]
EverythingFlag = Annotated[
    bool, typer.Option("--all", help="Elect for every partition that needs this election.")
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help=(
            'Read partitions from JSON: {"partitions": [{"topic": "t", "partition": '
            '0, "desiredLeader": 1}]}; desiredLeader is for a designation only.'
        ),
    ),
]
LeaderOption = Annotated[
    int | None, typer.Option("--leader", min=0, help="Broker to elect in a designation.")
]
ExplainOption = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="TOPIC-PARTITION",
        help=(
            "Elect no leader: show which replicas may lead, which may not and why, "
            "and which events the partition waits for."
        ),
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=TIMEOUT_S_MAX, help="Seconds to wait for the result."),
]


def elect(
    partitions: Names = None,
    kind: KindOption = Kind.PREFERRED,
    everything: EverythingFlag = False,
    file: FileOption = None,
    leader: LeaderOption = None,
    explain: ExplainOption = None,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonFlag = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Elect leaders and print a line per partition; exit code 1 if an election failed."""
    if sum((bool(partitions), everything, file is not None, explain is not None)) != 1:
        raise typer.BadParameter("give exactly one of partitions, --all, --file, --explain")
    if explain is not None:
        explanation.show(topic_partition(explain), bootstrap, timeout_s, as_json=as_json)
        return
    if leader is not None and (kind is not Kind.DESIGNATION or not partitions):
        raise typer.BadParameter("--leader needs --type designation and named partitions")
    if kind is Kind.DESIGNATION and leader is None and file is None:
        raise typer.BadParameter("a designation needs --leader, or --file with desiredLeader")
    wanted: DesiredLeaders | None = None
    if file is not None:
        wanted = read_election_file(file)
    elif partitions:
        wanted = {topic_partition(text): leader for text in partitions}
    election = ElectionType[kind.name]
    leaders = leaders_of(election, wanted)
    results = run(
        bootstrap,
        lambda client: Admin(client, timeout_s * 1000).elect_leaders(election, wanted, leaders),
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
    """Parse `orders-0` into topic and partition. Raises BadParameter."""
    topic, dash, index = text.rpartition("-")
    if not topic or not dash or not index.isdecimal() or int(index) > INT32_MAX:
        raise typer.BadParameter(f"expected TOPIC-PARTITION, such as orders-0, got {text!r}")
    return topic, int(index)


def outcome(result: ElectionResult) -> str:
    """Return the outcome of one election as text."""
    if result.number == ErrorCode.NONE:
        return "elected"
    if result.number == ErrorCode.ELECTION_NOT_NEEDED:
        return "not needed" + (f": {result.message}" if result.message else "")
    return result.reason
