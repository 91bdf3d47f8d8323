"""Elections that may lose committed records: each is listed."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import Check
from audit.findings.finding import Complaint, Severity
from audit.state.elections import LOSSY, Election


class LossyElections(Check):
    name = "lossy-election"
    severity = Severity.WARNING

    def on_election(self, election: Election) -> Iterable[Complaint]:
        if election.kind not in LOSSY:
            return
        yield Complaint(
            f"{election.kind} election of {election.topic}-{election.partition}: broker "
            f"{election.to_leader} leads since leader epoch {election.leader_epoch} (cause: "
            f"{election.cause}); records that it had not fetched before are lost",
            before={"leader": election.from_leader},
            after={"leader": election.to_leader, "leader_epoch": election.leader_epoch},
            topic=election.topic,
            partition=election.partition,
            offset=election.offset,
        )
