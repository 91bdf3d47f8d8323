"""`kraftbox elect`: leader elections that an operator requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from client.admin import Admin, ExplainedPartition
from client.cluster_client import ClusterClient
from client.elections import ElectionResult, ElectionType
from client.leaders import TopicPartition
from kraftbox.cli import completion, explanation
from kraftbox.cli.connect import BOOTSTRAP_DEFAULT, BootstrapOption, run
from kraftbox.cli.election_file import INT32_MAX, DesiredLeaders, leaders_of, read_election_file
from kraftbox.cli.explanation import Explained
from kraftbox.cli.output import FAILED, JsonFlag, say, say_json
from kraftbox.cli.prospects import NOTHING, loss_with
from kraftbox.cli.replica_logs import ReplicaLog
from protocol.errors import ApiError, ErrorCode

COMPARED_MAX = 20
"""Partitions whose replicas report their logs before an election that may lose records."""
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
        autocompletion=completion.partitions,
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
        autocompletion=completion.partitions,
        help=(
            "Elect no leader: show who leads, since when and why, the replicas with the ends "
            "of their logs, and what each election type would do now."
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

    results = run(bootstrap, lambda client: _elect(client, election, wanted, leaders, timeout_s))
    _tell(results, as_json=as_json)
    if any(one.result.failed for one in results.values()):
        raise typer.Exit(FAILED)


async def _elect(
    client: ClusterClient,
    election: ElectionType,
    wanted: DesiredLeaders | None,
    leaders: Mapping[TopicPartition, int] | None,
    timeout_s: float,
) -> dict[TopicPartition, Elected]:
    """Request the elections, the replicas' logs before them and the leaders after them."""
    admin = Admin(client, timeout_s * 1000)
    before: dict[TopicPartition, Explained] = {}
    if election is not ElectionType.PREFERRED:
        for partition in list(wanted or ())[:COMPARED_MAX]:
            with _known_to_kraftbox():
                before[partition] = await explanation.explain(client, partition, timeout_s)
    results = await admin.elect_leaders(election, wanted, leaders)
    after: dict[TopicPartition, ExplainedPartition] = {}
    with _known_to_kraftbox():
        led = [one for one, result in results.items() if result.number == ErrorCode.NONE]
        found = await admin.explain_elections(led)
        after = {(one.topic, one.partition): one for one in found}
    return {
        one: Elected(election, result, before.get(one), after.get(one))
        for one, result in results.items()
    }


@contextmanager
def _known_to_kraftbox() -> Iterator[None]:
    """Do without explanations of a Kafka cluster, and of a partition that does not exist."""
    with suppress(ApiError):
        yield


class Elected(NamedTuple):
    """The result of an election, with the partition before and after it as far as it is known."""

    kind: ElectionType
    result: ElectionResult
    before: Explained | None = None
    after: ExplainedPartition | None = None

    @property
    def log(self) -> ReplicaLog | None:
        """The new leader's log before the election."""
        if self.before is None or self.after is None:
            return None
        return self.before.replicas.known.get(self.after.leader)

    @property
    def loss(self) -> str | None:
        """The records at risk, None if unknown."""
        if self.kind is ElectionType.PREFERRED:
            return NOTHING
        if self.before is None or self.after is None:
            return None
        return loss_with(self.after.leader, self.before.found, self.before.replicas)


def _tell(results: Mapping[TopicPartition, Elected], *, as_json: bool) -> None:
    if not as_json:
        for (topic, index), one in results.items():
            say(f"{topic}-{index}: {outcome(one)}")
        return
    say_json(
        [
            {
                "topic": topic,
                "partition": index,
                "elected": one.result.number == ErrorCode.NONE,
                "error": None if not one.result.number else one.result.error.name,
                "message": one.result.message or None,
                "leader": None if one.after is None else one.after.leader,
                "leader_epoch": None if one.after is None else one.after.leader_epoch,
                "log": None
                if one.log is None
                else {"epoch": one.log.last_epoch, "end_offset": one.log.end_offset},
                "may_be_lost": one.loss if one.result.number == ErrorCode.NONE else None,
            }
            for (topic, index), one in results.items()
        ]
    )


def topic_partition(text: str) -> TopicPartition:
    """Parse `orders-0` into topic and partition. Raises BadParameter."""
    topic, dash, index = text.rpartition("-")
    if not topic or not dash or not index.isdecimal() or int(index) > INT32_MAX:
        raise typer.BadParameter(f"expected TOPIC-PARTITION, such as orders-0, got {text!r}")
    return topic, int(index)


def outcome(one: Elected) -> str:
    """Return the outcome of one election as text: the leader, its log, what may be lost."""
    result = one.result
    if result.number == ErrorCode.NONE:
        if one.after is None:
            return "elected"
        text = f"elected broker {one.after.leader} (leader epoch {one.after.leader_epoch})"
        if one.log is not None:
            text += f", whose log ends at {one.log.end_offset} (last epoch {one.log.last_epoch})"
        if one.loss is None:
            return f"{text}; records may be lost: kraftbox audit lists such elections"
        return f"{text}; {'nothing is' if one.loss == NOTHING else 'may be'} lost" + (
            "" if one.loss == NOTHING else f": {one.loss}"
        )
    if result.number == ErrorCode.ELECTION_NOT_NEEDED:
        return "not needed" + (f": {result.message}" if result.message else "")
    return result.reason
