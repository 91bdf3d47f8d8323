"""Models of chaos schedules, election files, status documents and audit reports."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kraftbox.documents.base import Document, Number, Whole

SECONDS_MAX = 3600


class ScheduledFault(Document):
    """One fault of `kraftbox chaos`; `kraftbox chaos --list` shows the kinds."""

    kind: str
    seconds: Number = Field(ge=0, lt=SECONDS_MAX, description="Duration in seconds.")
    draw: Whole = Field(
        default=0, description="Number that selects the victims if there are several."
    )


class ChaosSchedule(Document):
    """`kraftbox chaos --schedule`: these faults in their order, once."""

    faults: Annotated[list[ScheduledFault], Field(min_length=1)]


class _Read(BaseModel):
    """Base of documents to which a later release, or Kafka, may add keys."""

    model_config = ConfigDict(extra="allow")


class ElectedPartition(_Read):
    """A partition to elect a leader of."""

    topic: str = Field(min_length=1)
    partition: Whole = Field(ge=0, lt=2**31)
    desiredLeader: Annotated[Whole, Field(ge=0, lt=2**31)] | None = Field(
        default=None, description="Id of the broker to elect, in a designation."
    )


class ElectionFile(_Read):
    """`kraftbox elect --file`, in the form of kafka-leader-election."""

    partitions: list[ElectedPartition]


class Replica(_Read):
    """A replica of the metadata log."""

    id: int
    logEndOffset: int
    lag: int | None
    lastCaughtUpMs: int


class StatusQuorum(_Read):
    """The metadata quorum, as its leader reports it."""

    leader: int
    epoch: int
    highWatermark: int
    voters: list[Replica]
    observers: list[Replica]


class StatusNode(_Read):
    """A node: the supervisor's view of its process, and the cluster's view of a broker."""

    id: int
    roles: str
    rack: str | None
    state: str = Field(
        description="starting, running, paused, stopping, stopped, killed or failed."
    )
    ready: bool
    cutOff: bool
    pid: int | None
    exitCode: int | None
    error: str | None
    listeners: str
    addresses: list[str] = Field(default=[], description="Client addresses of a running broker.")
    http: str | None
    fenced: bool | None = None
    leaders: int | None = None
    replicas: int | None = None
    inSync: int | None = None


class Counted(_Read):
    """Numbers of partitions."""

    total: int
    leaderless: int
    underReplicated: int


class WaitingPartition(_Read):
    """A partition without leader, and what it waits for."""

    topic: str
    partition: int
    waits: str
    waitsFor: list[int]
    sinceMs: int | None
    text: str


class StatusPartitions(Counted):
    """Numbers of all partitions, and the first ones without leader."""

    waiting: list[WaitingPartition]


class StatusTopic(Counted):
    """Numbers of one topic's partitions."""

    name: str
    internal: bool


class Status(_Read):
    """`kraftbox status --json`; values that no node reported are null."""

    time: str = Field(description="Time in ISO 8601, UTC.")
    dir: str
    clusterId: str
    pid: int = Field(description="State of the supervisor.")
    quorum: StatusQuorum | None
    nodes: list[StatusNode]
    partitions: StatusPartitions | None
    topics: list[StatusTopic] | None


class AuditReport(_Read):
    """`audit.json` of `kraftbox audit`. docs/audit.md describes the lists."""

    summary: dict[str, Any]
    elections: list[dict[str, Any]]
    elections_left_out: int
    findings: list[dict[str, Any]]
    brokers: Any
    quorum: Any
    settings: list[dict[str, Any]]
    reassignments: list[dict[str, Any]]
    leadership: list[Any]
    leadership_left_out: int
    series: Any
    partitions: list[dict[str, Any]]
    data: list[dict[str, Any]]
    faults: list[Any] = Field(
        description=(
            "Faults of the client history or the cluster's journal: kind, nodes, begin and end in "
            "epoch ms, details."
        )
    )
