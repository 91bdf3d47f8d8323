"""A broker's epoch grows with each registration; records about it have the current one (P16)."""

from __future__ import annotations

from collections.abc import Iterable

from audit.checks.base import BrokerChange, BrokerCheck
from audit.findings.finding import Complaint
from audit.state.elections import BrokerEvent


class BrokerEpochs(BrokerCheck):
    name = "broker-epochs"

    def on_broker(self, change: BrokerChange) -> Iterable[Complaint]:
        before = change.before
        if before is None:
            return
        shown = None if change.after is None else change.after._asdict()
        if change.event is BrokerEvent.REGISTERED:
            same = change.after is not None and before.incarnation == change.after.incarnation
            if change.epoch < before.epoch or (change.epoch == before.epoch and not same):
                yield Complaint(
                    f"broker {change.id} registers with epoch {change.epoch} after epoch "
                    f"{before.epoch}",
                    before._asdict(),
                    shown,
                )
        elif change.epoch != before.epoch:
            yield Complaint(
                f"a record ({change.event}) has epoch {change.epoch} of broker {change.id}, but it "
                f"is registered with epoch {before.epoch}",
                before._asdict(),
                shown,
            )
