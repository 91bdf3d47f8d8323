"""Elections that may lose committed records: each is reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from audit.checks.base import ElectionCheck
from audit.findings.finding import Complaint, Severity
from audit.state.elections import LOSSY, Election, ElectionKind

_RISK: Mapping[ElectionKind, str] = {
    ElectionKind.LAST_KNOWN_LEADER: "records that it had not flushed before it ended may be lost",
    ElectionKind.UNCLEAN: "records that it had not fetched before may be lost",
    ElectionKind.UNCLEAN_RECOVERY: (
        "its log is the longest of those that were asked; records that it lacks may be lost"
    ),
    ElectionKind.DESIGNATED: "an operator named it; records that its log lacks may be lost",
}


class LossyElections(ElectionCheck):
    name = "lossy-election"
    severity = Severity.WARNING

    def on_election(self, election: Election) -> Iterable[Complaint]:
        if election.kind not in LOSSY:
            return
        yield Complaint(
            f"{election.kind} election of {election.topic}-{election.partition}: broker "
            f"{election.to_leader} leads since leader epoch {election.leader_epoch} (cause: "
            f"{election.cause}); {_RISK[ElectionKind(election.kind)]}",
            before={"leader": election.from_leader},
            after={"leader": election.to_leader, "leader_epoch": election.leader_epoch},
            topic=election.topic,
            partition=election.partition,
            offset=election.offset,
        )
