"""The checks: one file, one rule each."""

from __future__ import annotations

from audit.checks.acknowledged_lost import AcknowledgedLost
from audit.checks.acknowledged_order import AcknowledgedOrder
from audit.checks.acknowledged_twice import AcknowledgedTwice
from audit.checks.base import Check
from audit.checks.batch_crc import BatchCrc
from audit.checks.broker_epochs import BrokerEpochs
from audit.checks.data import DataCheck
from audit.checks.elr_cleared import ElrCleared
from audit.checks.epochs import Epochs
from audit.checks.fenced_in_isr import FencedInIsr
from audit.checks.isr_churn import IsrChurn
from audit.checks.leader_epochs import LeaderEpochs
from audit.checks.leader_in_isr import LeaderInIsr
from audit.checks.leader_skew import LeaderSkew
from audit.checks.leaderless import Leaderless
from audit.checks.log_gap import LogGap
from audit.checks.log_start import LogStart
from audit.checks.lossy_elections import LossyElections
from audit.checks.members import Members
from audit.checks.quorum_epochs import QuorumEpochs
from audit.checks.record_orphan import OrphanRecord
from audit.checks.record_unreadable import UnreadableRecord
from audit.checks.replica_damage import ReplicaDamage
from audit.checks.replicas_equal import ReplicasEqual
from audit.checks.snapshot import SnapshotEquality
from audit.checks.snapshot_whole import SnapshotWhole
from audit.checks.totals import TotalsCheck
from audit.checks.truncated_tail import TruncatedTail
from audit.checks.two_leaders import TwoLeaders
from audit.checks.under_min_isr import UnderMinIsr

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
"""Asked while one copy of the log is replayed."""

TOTALS_CHECKS: tuple[type[TotalsCheck], ...] = (
    QuorumEpochs,
    UnderMinIsr,
    Leaderless,
    IsrChurn,
    LeaderSkew,
)
"""Asked about the numbers of the whole log; `audit.checks.logs_agree` about its copies."""

DATA_CHECKS: tuple[type[DataCheck], ...] = (
    ReplicaDamage,
    ReplicasEqual,
    LeaderEpochs,
    AcknowledgedLost,
    AcknowledgedTwice,
    AcknowledgedOrder,
)
"""Asked about the replicas of one partition of the brokers."""
