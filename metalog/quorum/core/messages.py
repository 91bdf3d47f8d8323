"""Events and effects of the quorum core.

Events report what happened: time passed, a peer sent a request or a response, a write finished.
Effects are instructions for the node, carried out in order. The effect that persists state precedes
the effects that send it to a peer; the safety of the vote depends on that order (M3).

Messages between replicas appear here by meaning; `metalog.quorum.wire` converts them to and from
Kafka's requests and responses.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from metalog.quorum.core.voters import Endpoints, ReplicaKey, Voter, VoterEndpoint, VoterSet
from protocol.errors import ErrorCode


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive) and the epoch of the record before it; also identifies a
    snapshot."""

    offset: int
    epoch: int


class QuorumState(NamedTuple):
    """State that must survive a crash: the `quorum-state` file. None stands for no replica."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class LogView(Protocol):
    """The core's view of the log: in memory, immediate, never blocking."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot at the log start; 0 for an empty log."""
        ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def start_epoch(self) -> int:
        """Epoch of the snapshot at the log start; 0 if the log starts at the beginning."""
        ...

    @property
    def voters_offset(self) -> int:
        """Offset of the record with the latest voter set; -1 if it is not in this log."""
        ...

    @property
    def kraft_version(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the end of the largest epoch not above `epoch`."""
        ...


# --- events -----------------------------------------------------------------------------------


class Start(NamedTuple):
    """The log is loaded. The first event, exactly once."""


class Tick(NamedTuple):
    """A deadline that the core gave has passed (or may have)."""


class Flushed(NamedTuple):
    """The log is durable below `end_offset`; on a broker, which is never a voter, only written."""

    end_offset: int


class EndpointsBound(NamedTuple):
    """This node's controller listeners have their ports."""

    endpoints: Endpoints


class VotersChanged(NamedTuple):
    """The voter set in the log (including its uncommitted tail) has changed."""

    voters: VoterSet


class Resign(NamedTuple):
    """Step down: the node is stopping, or cannot do its work as leader."""


class VoteRequested(NamedTuple):
    """A Vote request. `voter` is the replica that the candidate means to reach, None if not
    given."""

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


class BeginEpochRequested(NamedTuple):
    """A leader announces that it leads `epoch`."""

    token: int
    leader_id: int
    epoch: int
    endpoints: Endpoints = ()
    voter: ReplicaKey | None = None


class EndEpochRequested(NamedTuple):
    """A leader resigns and names its preferred successors, best first."""

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


class FetchRequested(NamedTuple):
    """A replica fetches; a `last_epoch` below 0 stands for an unknown last epoch of its log."""

    token: int
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    last_epoch: int


class FetchAnswered(NamedTuple):
    """An answer to the SendFetch or FindLeader (`node_id` is `NOBODY`) with that `fetch_id`.

    It has at most one of these: `diverging`, the point where the logs diverge; `snapshot`, to load
    first; `size_bytes` of whole batches (the node keeps the bytes). endpoints: addresses of the
    nodes that the answer names.
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


class VoterUpdateRequested(NamedTuple):
    """A voter requests an update of its entry in the voter set."""

    token: int
    epoch: int
    voter: Voter


class VoterUpdateAnswered(NamedTuple):
    """The leader's answer to SendVoterUpdate."""

    error: ErrorCode


class LogTruncated(NamedTuple):
    """TruncateLog has been carried out."""


class SnapshotRequested(NamedTuple):
    """A replica requested a part of a snapshot: it is alive, although it cannot fetch yet."""

    replica: ReplicaKey


class SnapshotInstalled(NamedTuple):
    """The log was replaced by a fetched snapshot and starts at its end."""

    fetch_id: int
    id: OffsetAndEpoch


class SnapshotPieceFetched(NamedTuple):
    """The leader answered with one more piece of the snapshot of an InstallSnapshot."""

    fetch_id: int


class RequestKind(Enum):
    VOTE = "Vote"
    BEGIN_EPOCH = "BeginQuorumEpoch"
    END_EPOCH = "EndQuorumEpoch"
    FETCH = "Fetch"
    FETCH_SNAPSHOT = "FetchSnapshot"
    UPDATE_VOTER = "UpdateRaftVoter"


class RequestFailed(NamedTuple):
    """A request without an answer: the name does not resolve, the connection failed, or it timed
    out.

    fetch_id: of the failed fetch, for FETCH and FETCH_SNAPSHOT. refused: the peer's host answered
    that the port is closed. not_stored: the peer did not fail, but this node's disk did not store
    the snapshot. poll: epoch of a failed VOTE, and True for a pre-vote.
    """

    node_id: int
    kind: RequestKind
    fetch_id: int | None = None
    refused: bool = False
    not_stored: bool = False
    poll: tuple[int, bool] | None = None


Event: TypeAlias = (
    Start
    | Tick
    | Flushed
    | EndpointsBound
    | VotersChanged
    | Resign
    | VoteRequested
    | VoteAnswered
    | BeginEpochRequested
    | EndEpochRequested
    | EpochAnswered
    | FetchRequested
    | FetchAnswered
    | VoterUpdateRequested
    | VoterUpdateAnswered
    | LogTruncated
    | SnapshotRequested
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

    write_voters: add KRaftVersion and Voters records to the batch. The voter set is known from the
    formatting only, and followers have no other way to learn it.
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
    """Truncate the log to `end_offset`; ends with LogTruncated."""

    end_offset: int


class InstallSnapshot(NamedTuple):
    """Fetch a snapshot from a node and replace the log by it; ends with SnapshotInstalled.

    Check `QuorumCore.awaits` before replacing the log: the leader may have changed in the meantime.
    """

    fetch_id: int
    node_id: int
    epoch: int
    id: OffsetAndEpoch


class HighWatermarkAdvanced(NamedTuple):
    """Everything below `offset` is committed."""

    offset: int


class LeaderChanged(NamedTuple):
    """This node's view of the leader of `epoch` (None: unknown)."""

    leader_id: int | None
    epoch: int


class VoterGone(NamedTuple):
    """A voter's port refused this leader's BeginQuorumEpoch."""

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

    The answer to an earlier `fetch_id` is no longer awaited. Without `patient` the leader answers
    at once, also without new data.
    """

    fetch_id: int
    to: int
    epoch: int
    fetch_offset: int
    last_epoch: int
    patient: bool = True


class FindLeader(NamedTuple):
    """Send a fetch to a node that may know the leader, with this timeout."""

    fetch_id: int
    endpoint: VoterEndpoint
    timeout_ms: float
    epoch: int
    fetch_offset: int
    last_epoch: int


class SendVoterUpdate(NamedTuple):
    """Send this voter's entry to the leader."""

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
    """The answer to a Fetch: an error, the divergence point, a snapshot to load, or none of them.

    Without any of them, the node sends the log from `fetch_offset` on, and may wait for new data.
    """

    token: int
    error: ErrorCode
    epoch: int
    leader_id: int | None
    fetch_offset: int
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


class ReplyVoterUpdate(NamedTuple):
    """The answer to an update of a voter's entry.

    If it was `appended`, it must be committed before the node sends the response.
    """

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
