"""Judges of a run: one file for each family of promises, one registry of all."""

from __future__ import annotations

from simulation.judges.answers import AnswerJudge
from simulation.judges.check_quorum import CheckQuorumJudge
from simulation.judges.durable import DurableJudge
from simulation.judges.group_judge import GroupJudge
from simulation.judges.histories import HistoryJudge
from simulation.judges.judge import JudgeKind
from simulation.judges.leftovers import LeftoverJudge
from simulation.judges.local_logs import LocalLogJudge
from simulation.judges.new_replicas import NewReplicaJudge
from simulation.judges.nodes import NodeJudge
from simulation.judges.partition_judge import PartitionJudge
from simulation.judges.quorum import QuorumJudge
from simulation.judges.recoveries import RecoveryJudge
from simulation.judges.requests import RequestJudge
from simulation.judges.tiering import TierJudge
from simulation.judges.votes import VoteJudge

KINDS: dict[str, JudgeKind] = {
    "answers": JudgeKind("B5: in the order of requests", AnswerJudge),
    "quorum": JudgeKind("M1, M2, M7", lambda _world: QuorumJudge()),
    "votes": JudgeKind("M3: one vote in an epoch, on disk before it is sent", VoteJudge),
    "check quorum": JudgeKind("M17: a leader receives Fetches of a majority", CheckQuorumJudge),
    "durable": JudgeKind("M8, M14, P4, P11, P18: state on disk survives a power cut", DurableJudge),
    "partitions": JudgeKind(
        "P1-P18, P21-P23, M14, T1-T3: replicas, and the laws of metadata records", PartitionJudge
    ),
    "tiering": JudgeKind("S1-S6, S9, S10: store, metadata and logs of tiered topics", TierJudge),
    "new replicas": JudgeKind("S5, P13, T2: replicas that begin behind the tier", NewReplicaJudge),
    "local logs": JudgeKind("L1-L4: leaders that hold enough of the log locally", LocalLogJudge),
    "recoveries": JudgeKind("P21, P22: log reports of brokers, and counters", RecoveryJudge),
    "nodes": JudgeKind("no fatal failure; all have the same metadata in the end", NodeJudge),
    "requests": JudgeKind("P26, G8: requests are answered in their time", RequestJudge),
    "leftovers": JudgeKind(
        "P26: in the end no request, task, timer, connection or file is left over", LeftoverJudge
    ),
    "groups": JudgeKind("G4, G7; members find G1 to G3, G5, G6, G8 and G9", GroupJudge),
    "histories": JudgeKind("H1-H9, P6, P14, P24: responses to clients", HistoryJudge),
}
"""Judge kinds by the name that options and tables use. All of them watch every run, since some need
the state of others."""
ALL = frozenset(KINDS)
