"""Events and effects of the quorum core.

Events are things that happened: time passed, a peer asked or answered, the disk has what it was
given. Effects are orders to the node, to be carried out in the order given; the one that
persists stands before the ones that tell anybody, and that order is the safety of the vote (M3).

Messages between replicas appear here by meaning; `metalog.quorum.wire` turns them into Kafka's
requests and back.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from metalog.quorum.core.voters import Endpoints, ReplicaKey, Voter, VoterEndpoint, VoterSet
from protocol.errors import ErrorCode


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive) and the epoch of the record before it; a snapshot's name too."""

    offset: int
    epoch: int


class QuorumState(NamedTuple):
    """What must survive a crash: the `quorum-state` file. None means nobody."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class LogView(Protocol):
    """What the core asks of the log. In memory, immediate, never blocking."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot the log starts at; 0 for an empty log."""
        ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def start_epoch(self) -> int:
        """Epoch of the snapshot the log starts at; 0 if it starts at the beginning."""
        ...

    @property
    def voters_offset(self) -> int:
        """Offset of the record with the latest voter set; -1 if it is not in this log."""
        ...

    @property
    def kraft_version(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch not above `epoch` ends."""
        ...


# --- events -----------------------------------------------------------------------------------


class Start(NamedTuple):
    """The log is loaded. Once, before anything else."""


class Tick(NamedTuple):
    """A deadline that the core gave has passed (or may have)."""


class Flushed(NamedTuple):
    """The log is durable below `end_offset`; or written, where nobody counts on this replica."""

    end_offset: int


class EndpointsBound(NamedTuple):
    """This node's controller listeners have their ports."""

    endpoints: Endpoints


class VotersChanged(NamedTuple):
    """The log (its uncommitted tail included) now says another voter set."""

    voters: VoterSet


class Resign(NamedTuple):
    """Step down: the node is stopping, or cannot do its work as leader."""


class VoteAsked(NamedTuple):
    """A Vote request. `voter` is whom the candidate believes it asks, None if it did not say."""

    token: int
    candidate: ReplicaKey
    epoch: int
    last: OffsetAndEpoch
    pre_vote: bool = False
    voter: ReplicaKey | None = None


class VoteAnswered(NamedTuple):
    voter_id: int
    epoch: int
    leader_id: int | None
    granted: bool
    pre_vote: bool = False


class BeginEpochAsked(NamedTuple):
    """A leader says that it leads `epoch`."""

    token: int
    leader_id: int
    epoch: int
    endpoints: Endpoints = ()
    voter: ReplicaKey | None = None


class EndEpochAsked(NamedTuple):
    """A leader resigns and names who should follow it, best first."""

    token: int
    leader_id: int
    epoch: int
    preferred: tuple[ReplicaKey, ...] = ()


class EpochAnswered(NamedTuple):
    """An answer to SendBeginEpoch (`begin`) or SendEndEpoch."""

    voter_id: int
    epoch: int
    leader_id: int | None
    begin: bool
    ok: bool


class FetchAsked(NamedTuple):
    """A replica fetches; with `last_epoch` below 0 it says nothing about its log's last epoch."""

    token: int
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_epoch: int


class FetchAnswered(NamedTuple):
    """An answer to the SendFetch or FindLeader (`node_id` is NOBODY) with that `fetch_id`.

    One of `diverging`, `snapshot`, `size_bytes` says what it holds: where the logs part, which
    snapshot to load first, or how many bytes of whole batches (the node keeps the bytes).
    `endpoints` say where the nodes listen that the answer names.
    """

    fetch_id: int
    node_id: int
    epoch: int
    leader_id: int | None
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    size_bytes: int = 0
    endpoints: tuple[tuple[int, VoterEndpoint], ...] = ()


class VoterUpdateAsked(NamedTuple):
    """A voter says what its entry in the voter set should be."""

    token: int
    epoch: int
    voter: Voter


class VoterUpdateAnswered(NamedTuple):
    """The leader's answer to SendVoterUpdate."""

    error: ErrorCode


class LogTruncated(NamedTuple):
    """TruncateLog has been carried out."""


class SnapshotAsked(NamedTuple):
    """A replica asked for part of a snapshot: it lives, though it cannot fetch yet."""

    replica: ReplicaKey


class SnapshotInstalled(NamedTuple):
    """The log was replaced by a fetched snapshot and starts at its end."""

    fetch_id: int
    id: OffsetAndEpoch


class SnapshotPieceFetched(NamedTuple):
    """The leader answered with one more piece of the snapshot that InstallSnapshot asked for."""

    fetch_id: int


class RequestKind(Enum):
    VOTE = "Vote"
    BEGIN_EPOCH = "BeginQuorumEpoch"
    END_EPOCH = "EndQuorumEpoch"
    FETCH = "Fetch"
    FETCH_SNAPSHOT = "FetchSnapshot"
    UPDATE_VOTER = "UpdateRaftVoter"


class RequestFailed(NamedTuple):
    """No answer: the peer does not resolve, does not connect, or was silent too long.

    `fetch_id` is that of the fetch that failed, for FETCH and FETCH_SNAPSHOT. `refused` says that
    the peer's machine answered: nobody listens on that port. `not_stored`: not the peer failed but
    the own disk, which did not take the snapshot.
    """

    node_id: int
    kind: RequestKind
    fetch_id: int | None = None
    refused: bool = False
    not_stored: bool = False


Event: TypeAlias = (
    Start
    | Tick
    | Flushed
    | EndpointsBound
    | VotersChanged
    | Resign
    | VoteAsked
    | VoteAnswered
    | BeginEpochAsked
    | EndEpochAsked
    | EpochAnswered
    | FetchAsked
    | FetchAnswered
    | VoterUpdateAsked
    | VoterUpdateAnswered
    | LogTruncated
    | SnapshotAsked
    | SnapshotInstalled
    | SnapshotPieceFetched
    | RequestFailed
)


# --- effects ----------------------------------------------------------------------------------


class PersistState(NamedTuple):
    """Write and flush the quorum-state file before any later effect."""

    state: QuorumState


class AppendLeaderChange(NamedTuple):
    """Append the control batch that opens an epoch, then flush.

    `write_voters` asks for KRaftVersion and Voters records in the same batch: the set is known
    from the formatting alone, and followers have no other way to learn it.
    """

    epoch: int
    leader_id: int
    voter_ids: tuple[int, ...]
    granting_ids: tuple[int, ...]
    write_voters: bool


class AppendVoters(NamedTuple):
    """Append a changed voter set, then flush."""

    epoch: int
    voters: VoterSet


class AppendFetched(NamedTuple):
    """Append the fetched batches that the node holds for `node_id`, then flush."""

    node_id: int


class TruncateLog(NamedTuple):
    """Cut the log so that it ends at `end_offset`; ends with LogTruncated."""

    end_offset: int


class InstallSnapshot(NamedTuple):
    """Fetch a snapshot from a node and replace the log by it; ends with SnapshotInstalled.

    Ask `QuorumCore.awaits` before replacing: another leader may have come meanwhile.
    """

    fetch_id: int
    node_id: int
    epoch: int
    id: OffsetAndEpoch


class HighWatermarkAdvanced(NamedTuple):
    """Everything below `offset` is committed."""

    offset: int


class LeaderChanged(NamedTuple):
    """This node's view: who leads `epoch` (None: not known)."""

    leader_id: int | None
    epoch: int


class VoterGone(NamedTuple):
    """Nobody listens where a voter did that this leader told of its epoch."""

    voter_id: int


class SendVote(NamedTuple):
    to: int
    epoch: int
    last: OffsetAndEpoch
    pre_vote: bool


class SendBeginEpoch(NamedTuple):
    to: int
    epoch: int


class SendEndEpoch(NamedTuple):
    to: int
    epoch: int
    preferred: tuple[ReplicaKey, ...]


class SendFetch(NamedTuple):
    """Fetch from the leader.

    Whatever was asked with an earlier `fetch_id` is not waited for any more. Without `patient` the
    answer is wanted at once, news or not.
    """

    fetch_id: int
    to: int
    epoch: int
    fetch_offset: int
    last_epoch: int
    patient: bool = True


class FindLeader(NamedTuple):
    """Send a fetch to a node that may know the leader, and wait so long for the answer."""

    fetch_id: int
    endpoint: VoterEndpoint
    timeout_ms: float
    epoch: int
    fetch_offset: int
    last_epoch: int


class SendVoterUpdate(NamedTuple):
    """Tell the leader of this voter's entry."""

    to: int
    epoch: int
    voter: Voter


class ReplyVote(NamedTuple):
    token: int
    error: ErrorCode
    epoch: int
    leader_id: int | None
    granted: bool


class ReplyEpoch(NamedTuple):
    """The answer to BeginQuorumEpoch or EndQuorumEpoch."""

    token: int
    error: ErrorCode
    epoch: int
    leader_id: int | None


class ReplyFetch(NamedTuple):
    """The answer to a Fetch: an error, where the logs part, a snapshot to load, or, if none of
    them, what the log has from `fetch_offset` on (the node may wait for it to have something)."""

    token: int
    error: ErrorCode
    epoch: int
    leader_id: int | None
    fetch_offset: int
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


class ReplyVoterUpdate(NamedTuple):
    """The answer to an update of a voter's entry; one that was `appended` is to be committed
    before anybody hears of it."""

    token: int
    error: ErrorCode
    epoch: int
    leader_id: int | None
    appended: bool = False


Effect: TypeAlias = (
    PersistState
    | AppendLeaderChange
    | AppendVoters
    | AppendFetched
    | TruncateLog
    | InstallSnapshot
    | HighWatermarkAdvanced
    | LeaderChanged
    | VoterGone
    | SendVote
    | SendBeginEpoch
    | SendEndEpoch
    | SendFetch
    | FindLeader
    | SendVoterUpdate
    | ReplyVote
    | ReplyEpoch
    | ReplyFetch
    | ReplyVoterUpdate
)
