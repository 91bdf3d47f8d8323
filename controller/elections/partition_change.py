"""The only constructor of PartitionChangeRecord.

All code that changes a partition (for a fenced broker, a new ISR, a requested election, a finished
reassignment) describes the change as a `Target`. It gets a record, or None if nothing changes.
Election, ISR, ELR and epochs are decided together here, because each depends on the others. A
caller that set one of them itself could leave a fenced leader, or a replica in both ISR and ELR.

Every input that safety depends on is a field of `Safety` without default, so that no caller can
forget one. The caller resolves configurations in it (min ISR, unclean election) at the time of the
change, never earlier.

Rules
- The partition epoch grows by one with each record (replay does it). The leader epoch grows when
  the record names a leader: the leader changes, or a replica leaves the assignment, or, up to
  metadata.version 3.5, the ISR shrinks (KAFKA-15021 ended that).
- Without ELR the last ISR member stays in the ISR, leader or not: it is the only replica known to
  hold every committed record. With ELR (KIP-966) the ISR may become empty, and the replicas that
  left it while it was below min ISR are kept in the ELR (`elections.elr`).
- A replica in a directory that its broker does not have online leaves the ISR in the same way. Its
  directory stays on record. If the replica was the last member, only that disk holds every
  committed record, and a broker that returns with it may lead.
- A clean election elects a member of the ISR, else of the ELR. An unclean one makes the new leader
  the only ISR member and marks the partition RECOVERING (KIP-704).
- A reassignment ends when every target replica is in the ISR and the remaining ISR is not below min
  ISR. The second condition goes beyond Kafka 4.3, as KIP-966 requires.
- min ISR is capped at the number of replicas: effective min ISR.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from controller.configs.topic_settings import RecoveryStrategy
from controller.elections.cause import Cause
from controller.elections.election import Candidates, Elected, Election, elect
from controller.elections.eligibility import (
    DIRECTORY_OFFLINE,
    ElectionOrder,
    EligibilityOf,
    PartitionReplicas,
    ReplicaEligibility,
)
from controller.elections.elr import (
    NOBODY_ELSE,
    LastKnownMode,
    StateAfterChange,
    effective_min_isr,
    eligible_sets,
    standing_elr,
)
from controller.elections.local_logs import kept
from metalog.image.features import (
    DIRECTORY_ASSIGNMENT_LEVEL,
    LEADER_EPOCH_BUMP_ON_ISR_SHRINK_UNTIL_LEVEL,
)
from metalog.image.local_log import NO_LOCAL_LOGS, LocalLogTable
from metalog.image.snapshot import local_log_entries
from metalog.image.values import NO_LEADER, LeaderRecoveryState, PartitionImage
from protocol.metadata.partition_change_record import PartitionChangeRecord

_LEADER_UNCHANGED = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """Inputs that make an election safe. No field has a default, on purpose.

    min_isr: current `min.insync.replicas` of the topic. last_known_mode: contents of LastKnownELR.
    strategy: the topic's rule if no clean candidate is left. last_known_electable: whether the last
    known leader may be elected, if the strategy does not forbid it. unclean_shutdown: brokers that
    lost unflushed data, as found in this decision. order: sorts replicas into election order.
    now_ms: wall clock for that order. keeps_local_logs: whether local-log stats of the topic are
    stored (KIP-1303). metadata_version: level, since some rules depend on it.
    """

    min_isr: int
    elr_enabled: bool
    last_known_mode: LastKnownMode
    strategy: RecoveryStrategy
    last_known_electable: bool
    unclean_shutdown: frozenset[int]
    eligibility_of: EligibilityOf
    order: ElectionOrder
    now_ms: int
    keeps_local_logs: bool
    metadata_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The requested state of a partition; None leaves a part unchanged.

    begun_anew: replicas whose log was replaced by another one. They leave ISR and ELR as after an
    unclean shutdown, and may lead.
    """

    isr: tuple[int, ...] | None = None
    recovery_state: LeaderRecoveryState | None = None
    replicas: tuple[int, ...] | None = None
    directories: tuple[bytes, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    begun_anew: frozenset[int] = frozenset()


class PartitionChange(NamedTuple):
    """A record, and the elected leader (also if the leader stays).

    local_logs: the table in the record, None if it has none.
    """

    record: PartitionChangeRecord
    elected: Elected
    local_logs: LocalLogTable | None = None


class Decided(NamedTuple):
    """A change without its local logs, so that many partitions can share it.

    Local logs affect a change only through the order of the candidates. record: None if nothing
    changes. local_logs: the stats known after the change.
    """

    topic_id: bytes
    record: PartitionChangeRecord | None
    elected: Elected
    local_logs: LocalLogTable


class _Draft:
    """The next state of a partition, changed in place and private to `decide_change`.

    It is mutable because fencing one broker may need ten thousand of these.
    """

    __slots__ = (
        "adding",
        "directories",
        "doubted",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "local_logs",
        "recovery_state",
        "removing",
        "replicas",
    )

    def __init__(
        self,
        before: PartitionImage,
        target: Target,
        safety: Safety,
        reported_logs: LocalLogTable | None,
    ) -> None:
        self.replicas = before.replicas if target.replicas is None else target.replicas
        self.directories = before.directories if target.directories is None else target.directories
        self.adding = before.adding if target.adding is None else target.adding
        self.removing = before.removing if target.removing is None else target.removing
        isr = before.isr if target.isr is None else target.isr
        self.doubted = safety.unclean_shutdown | target.begun_anew
        if self.doubted:
            isr = tuple(r for r in isr if r not in self.doubted)
        self.isr = isr
        self.elr = before.elr
        self.last_known_elr = before.last_known_elr
        self.leader = before.leader
        self.local_logs = before.local_logs if reported_logs is None else reported_logs
        self.recovery_state: int = before.recovery_state
        if target.recovery_state is not None:
            self.recovery_state = int(target.recovery_state)


def replicas_of(topic_id: bytes, partition_id: int, partition: PartitionImage) -> PartitionReplicas:
    """Return the partition in the form that elections use."""
    return PartitionReplicas(
        topic_id, partition_id, partition.replicas, partition.directories, partition.local_logs
    )


def decide_change(
    partition: PartitionImage,
    *,
    topic_id: bytes,
    partition_id: int,
    target: Target,
    election: Election,
    cause: Cause,
    safety: Safety,
    reported_logs: LocalLogTable | None,
) -> Decided:
    """Decide the change that takes `partition` to `target`, and the election that follows from it.

    `written` turns the result into the partition's record. A record that names a leader contains
    the cause, and the kind of election if the leader changes.

    Args:
        `reported_logs`: all known local logs, after a leader's report; None without a report.
    """
    draft = _Draft(partition, target, safety, reported_logs)
    place = PartitionReplicas(topic_id, partition_id, draft.replicas, draft.directories)
    eligibility_of = partial(safety.eligibility_of, place)
    _drop_offline(draft, eligibility_of, safety)
    if (draft.adding or draft.removing) and _complete_reassignment(draft, safety):
        place = place._replace(replicas=draft.replicas, directories=draft.directories)
        eligibility_of = partial(safety.eligibility_of, place)
    if draft.local_logs:
        draft.local_logs = _known_local_logs(partition, draft, safety)
        place = place._replace(local_logs=draft.local_logs)
    ordered = safety.order(place, draft.replicas, safety.now_ms)
    elected = elect(_candidates(partition, draft, ordered, safety), election, eligibility_of)
    _apply_election(partition, draft, elected, safety)
    record = _record(partition, draft, safety)
    if record is not None:
        record.topic_id = topic_id
        record.partition_id = partition_id
        if record.leader != _LEADER_UNCHANGED:
            record.election_cause = cause.value
            if record.leader != partition.leader:
                record.election_kind = elected.kind.value
    return Decided(topic_id, record, elected, draft.local_logs)


def written(
    decided: Decided,
    partition: PartitionImage,
    partition_id: int,
    *,
    is_report: bool,
    touch: bool,
) -> PartitionChange | None:
    """Return the change with its local logs, None if nothing changes.

    The record in `decided` may be modified.

    Args:
        `is_report`: the local logs come from a leader's report, so a difference in them is a change
            by itself.
        touch: if nothing changes, repeat the ISR in a record: its replay only moves the partition
            epoch.
    """
    record, after = decided.record, decided.local_logs
    news = after is not partition.local_logs and after != partition.local_logs
    news = news and (is_report or record is not None)
    if record is None:
        if not (news or touch):
            return None
        isr = None if news else list(partition.isr)
        record = PartitionChangeRecord(
            topic_id=decided.topic_id, partition_id=partition_id, isr=isr
        )
    if news:
        record.local_logs = local_log_entries(PartitionChangeRecord, after)
    return PartitionChange(record, decided.elected, after if news else None)


def _drop_offline(draft: _Draft, eligibility_of: ReplicaEligibility, safety: Safety) -> None:
    """Remove replicas whose directory is offline from the ISR, unless that would empty it without
    ELR."""
    online = [member for member in draft.isr if eligibility_of(member) != DIRECTORY_OFFLINE]
    if len(online) != len(draft.isr) and (online or safety.elr_enabled):
        draft.isr = tuple(online)


def _known_local_logs(before: PartitionImage, draft: _Draft, safety: Safety) -> LocalLogTable:
    """Return the local-log stats that stay valid for the new replicas, empty without a
    threshold."""
    if not safety.keeps_local_logs:
        return NO_LOCAL_LOGS
    if not draft.doubted and (draft.replicas, draft.directories) == before[:2]:
        return draft.local_logs
    return kept(
        draft.local_logs,
        dict(zip(before.replicas, before.directories, strict=True)),
        dict(zip(draft.replicas, draft.directories, strict=True)),
        draft.doubted,
    )


def _complete_reassignment(draft: _Draft, safety: Safety) -> bool:
    final = tuple(r for r in draft.replicas if r not in draft.removing)
    isr = tuple(r for r in draft.isr if r in final)
    enough = effective_min_isr(safety.min_isr, len(final))
    if not set(final) <= set(isr) or len(isr) < enough:
        return False
    directory_of = dict(zip(draft.replicas, draft.directories, strict=True))
    draft.replicas = final
    draft.directories = tuple(directory_of[r] for r in final)
    draft.adding = draft.removing = ()
    draft.isr = isr
    return True


def _candidates(
    before: PartitionImage, draft: _Draft, ordered: tuple[int, ...], safety: Safety
) -> Candidates:
    if not safety.elr_enabled:
        return Candidates(ordered, before.leader, draft.isr, (), None)
    elr = standing_elr(
        before,
        draft.replicas,
        draft.isr,
        min_isr=safety.min_isr,
        unclean_shutdown=draft.doubted,
    )
    return Candidates(ordered, before.leader, draft.isr, elr, last_known_candidate(before, safety))


def last_known_candidate(before: PartitionImage, safety: Safety) -> int | None:
    """Return the last known leader as a candidate, alive or not; None while the partition has a
    leader: LastKnownELR is then left from WHOLE_SET mode."""
    if (
        before.leader != NO_LEADER
        or safety.last_known_mode is not LastKnownMode.LAST_LEADER
        or safety.strategy is RecoveryStrategy.NONE
        or not safety.last_known_electable
        or len(before.last_known_elr) != 1
    ):
        return None
    return before.last_known_elr[0]


def _apply_election(
    before: PartitionImage, draft: _Draft, elected: Elected, safety: Safety
) -> None:
    draft.leader = elected.leader
    if elected.unclean or elected.from_elr:
        draft.isr = (elected.leader,)
    if elected.unclean:
        draft.recovery_state = int(LeaderRecoveryState.RECOVERING)
    if not safety.elr_enabled:
        # Without the feature, the next change clears what is left of the sets.
        draft.elr, draft.last_known_elr = NOBODY_ELSE
        if not draft.isr and before.isr:
            _keep_one(before, draft)
        return
    draft.elr, draft.last_known_elr = eligible_sets(
        before,
        StateAfterChange(draft.replicas, draft.isr, draft.leader, elected.unclean),
        min_isr=safety.min_isr,
        unclean_shutdown=draft.doubted,
        mode=safety.last_known_mode,
    )


def _keep_one(before: PartitionImage, draft: _Draft) -> None:
    """Keep the last member in the ISR without ELR, though it does not lead."""
    stays = [r for r in before.isr if r in draft.replicas] or [draft.replicas[0]]
    draft.isr = (before.leader if before.leader in stays else stays[0],)


def _record(before: PartitionImage, after: _Draft, safety: Safety) -> PartitionChangeRecord | None:
    """Return the differences as a record without its key, None without any."""
    record = PartitionChangeRecord()
    changed = _set_assignment(
        record,
        before,
        after,
        with_directories=safety.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL,
    )
    if after.isr != before.isr:
        record.isr, changed = list(after.isr), True
    if after.elr != before.elr:
        record.eligible_leader_replicas, changed = list(after.elr), True
    if after.last_known_elr != before.last_known_elr:
        record.last_known_elr, changed = list(after.last_known_elr), True
    if after.recovery_state != before.recovery_state:
        record.leader_recovery_state, changed = int(after.recovery_state), True
    if after.leader != before.leader or _needs_new_epoch(before, after, safety):
        record.leader, changed = after.leader, True
    return record if changed else None


def _set_assignment(
    record: PartitionChangeRecord, before: PartitionImage, after: _Draft, *, with_directories: bool
) -> bool:
    changed = False
    if after.replicas != before.replicas:
        record.replicas, changed = list(after.replicas), True
    if with_directories and after.directories != before.directories:
        record.directories, changed = list(after.directories), True
    if after.removing != before.removing:
        record.removing_replicas, changed = list(after.removing), True
    if after.adding != before.adding:
        record.adding_replicas, changed = list(after.adding), True
    return changed


def _needs_new_epoch(before: PartitionImage, after: _Draft, safety: Safety) -> bool:
    if after.replicas is not before.replicas and set(before.replicas) - set(after.replicas):
        return True
    if safety.metadata_version > LEADER_EPOCH_BUMP_ON_ISR_SHRINK_UNTIL_LEVEL:
        return False
    return bool(set(before.isr) - set(after.isr))
