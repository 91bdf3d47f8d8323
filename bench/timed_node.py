"""Shell: A node that records the times of ISR changes and local-log reports.

    python -m bench.timed_node server.properties EVENTS.json

It is a `kraftbox server` that writes its events at SIGUSR2. Times are seconds of the machine's
monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.replication.partition import isr_changes, leadership, local_log_reports
from broker.replication.partition.effects import Effects
from broker.replication.partition.isr import ROLLED_BACK, IsrProposal, PartitionStateNow
from broker.replication.partition.partition import Partition
from broker.replication.requests import alter_partition_sender
from broker.replication.requests.alter_partition import PARTITIONS
from broker.replication.requests.local_log_reports import LocalLogReports
from kraftbox.process.lifetime import run_file
from protocol.errors import ErrorCode

WAITED, CHANGED, REPORTED, REFUSED = "waited", "changed", "reported", "refused"
"""The error code follows the last one."""
_OVERRIDES = {"kraftbox.http.listener": ""}


class Notes:
    """The recorded events: kind, end time, duration."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float, float]] = []
        self._wanted: dict[int, float] = {}

    def over(self, kind: str, begun: float) -> None:
        now = time.monotonic()
        self.events.append((kind, now, now - begun))

    def write(self, path: Path) -> None:
        """Write the events atomically: a reader finds the whole file."""
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self.events))
        unfinished.replace(path)

    def watch_isr_changes(self) -> None:
        """Record ISR changes from the leader's intention to the controller's answer.

        Changes that were proposed again because of a report have another event, up to the new
        proposal.
        """
        propose, goes_on = isr_changes.propose_isr, isr_changes.keep_proposal
        answered = isr_changes.isr_answered

        def proposing(partition: Partition, members: frozenset[int]) -> Effects:
            if partition.proposal is None:
                self._wanted[id(partition)] = time.monotonic()
            return propose(partition, members)

        def going_on(partition: Partition, proposal: IsrProposal) -> Effects:
            begun = self._wanted.get(id(partition))
            refused = proposal is partition.refused_proposal
            effects = goes_on(partition, proposal)
            if effects and begun is not None:
                self._wanted[id(partition)] = begun
                if refused:
                    self.over(WAITED, begun)
            return effects

        def answering(
            partition: Partition, proposal: IsrProposal, error: ErrorCode, state: PartitionStateNow
        ) -> Effects:
            if error is not ErrorCode.NONE:
                self.over(f"{REFUSED} {error.name}", time.monotonic())
            if error is ErrorCode.NONE or error in ROLLED_BACK:
                begun = self._wanted.pop(id(partition), None)
                if begun is not None:
                    self.over(CHANGED, begun)
            return answered(partition, proposal, error, state)

        isr_changes.keep_proposal = going_on
        leadership.keep_proposal = going_on  # type: ignore[attr-defined]
        local_log_reports.keep_proposal = going_on  # type: ignore[attr-defined]
        isr_changes.propose_isr = proposing
        timed = replace(PARTITIONS, answered=answering)
        alter_partition_sender.PARTITIONS = timed  # type: ignore[attr-defined]

    def watch_reports(self) -> None:
        """Record one event per partition of a report, from its building to its answer."""
        build, answered = LocalLogReports.next_request, LocalLogReports.answered
        begun: dict[int, tuple[float, int]] = {}

        def building(queue: LocalLogReports, *arguments: Any) -> Any:
            request = build(queue, *arguments)
            if request is not None:
                begun[id(queue)] = time.monotonic(), len(queue._in_flight or ())
            return request

        def answering(queue: LocalLogReports, *answer: Any) -> None:
            since, count = begun[id(queue)]
            for _ in range(count):
                self.over(REPORTED, since)
            answered(queue, *answer)

        LocalLogReports.next_request = building  # type: ignore[method-assign,assignment]
        LocalLogReports.answered = answering  # type: ignore[method-assign,assignment]


def main() -> int:
    properties, events = sys.argv[1:]
    notes = Notes()
    notes.watch_isr_changes()
    notes.watch_reports()
    signal.signal(signal.SIGUSR2, lambda *_: notes.write(Path(events)))
    return run_file(properties, _OVERRIDES)


if __name__ == "__main__":
    sys.exit(main())
