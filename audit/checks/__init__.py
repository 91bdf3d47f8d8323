"""Checks: one rule per file, in packages by their subject."""

from __future__ import annotations

from audit.checks.base import Check
from audit.checks.data.acknowledged_lost import AcknowledgedLost
from audit.checks.data.acknowledged_order import AcknowledgedOrder
from audit.checks.data.acknowledged_twice import AcknowledgedTwice
from audit.checks.data.base import DataCheck
from audit.checks.data.leader_epochs import LeaderEpochs
from audit.checks.data.lost_records import LostRecords
from audit.checks.data.replica_damage import ReplicaDamage
from audit.checks.data.replicas_equal import ReplicasEqual
from audit.checks.log.batch_crc import BatchCrc
from audit.checks.log.epochs import Epochs
from audit.checks.log.log_gap import LogGap
from audit.checks.log.log_start import LogStart
from audit.checks.log.snapshot_whole import SnapshotWhole
from audit.checks.log.truncated_tail import TruncatedTail
from audit.checks.metadata.broker_epochs import BrokerEpochs
from audit.checks.metadata.elr_cleared import ElrCleared
from audit.checks.metadata.fenced_in_isr import FencedInIsr
from audit.checks.metadata.leader_in_isr import LeaderInIsr
from audit.checks.metadata.lossy_elections import LossyElections
from audit.checks.metadata.members import Members
from audit.checks.metadata.record_orphan import OrphanRecord
from audit.checks.metadata.record_unreadable import UnreadableRecord
from audit.checks.metadata.snapshot_equality import SnapshotEquality
from audit.checks.metadata.two_leaders import TwoLeaders
from audit.checks.totals.base import TotalsCheck
from audit.checks.totals.isr_churn import IsrChurn
from audit.checks.totals.leader_skew import LeaderSkew
from audit.checks.totals.leaderless import Leaderless
from audit.checks.totals.quorum_epochs import QuorumEpochs
from audit.checks.totals.under_min_isr import UnderMinIsr

REPLAY_CHECKS: tuple[type[Check], ...] = (
    BatchCrc,
    TruncatedTail,
    LogGap,
    LogStart,
    Epochs,
    UnreadableRecord,
    OrphanRecord,
    LeaderInIsr,
    Members,
    ElrCleared,
    FencedInIsr,
    TwoLeaders,
    BrokerEpochs,
    LossyElections,
    SnapshotEquality,
    SnapshotWhole,
)
"""Called while one copy of the log is replayed."""

TOTALS_CHECKS: tuple[type[TotalsCheck], ...] = (
    QuorumEpochs,
    UnderMinIsr,
    Leaderless,
    IsrChurn,
    LeaderSkew,
)
"""Called with the totals of the whole log; `audit.checks.log.logs_agree` checks its copies."""

DATA_CHECKS: tuple[type[DataCheck], ...] = (
    ReplicaDamage,
    ReplicasEqual,
    LeaderEpochs,
    LostRecords,
    AcknowledgedLost,
    AcknowledgedTwice,
    AcknowledgedOrder,
)
"""Called with the replicas of one partition."""
