"""All copies of the log are equal up to the high watermark (M5, M14).

Two copies that agree on the epoch of a batch must agree on all its bytes, wherever the high
watermark was: an epoch has one leader, and a leader writes an offset once. If the epochs differ,
one copy has records of a leader that was replaced. That is allowed if they were never committed:
the copy will be truncated there. They were committed if a snapshot of the same copy covers them,
because snapshots contain committed records only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from audit.findings.finding import Complaint, Severity


class LogsAgree:
    name: ClassVar[str] = "logs-agree"
    severity: ClassVar[Severity] = Severity.ERROR

    def on_comparisons(
        self, comparisons: Sequence[Mapping[str, Any]], primary: str, snapshots: Mapping[str, int]
    ) -> Iterable[Complaint]:
        """Check the copies of the whole log.

        `comparisons` are the events of the tasks that compare copies, by offset. `snapshots` maps
        each log to the end offset of its newest snapshot.
        """
        diverged: set[str] = set()
        for event in comparisons:
            log = event["log"]
            for offset, epoch, mine, other in event["conflicts"]:
                yield Complaint(
                    f"{primary} and {log} hold different batches at offset {offset}, both of epoch "
                    f"{epoch}",
                    before={"log": primary, "end_offset": mine[0], "crc": mine[2]},
                    after={"log": log, "end_offset": other[0], "crc": other[2]},
                    offset=offset,
                )
            if event["diverged"] is None or log in diverged:
                continue
            diverged.add(log)
            offset, epoch, other_epoch = event["diverged"]
            committed = min(snapshots.get(primary, 0), snapshots.get(log, 0)) > offset
            yield Complaint(
                f"{log} differs from {primary} from offset {offset} on: epoch {other_epoch} there, "
                f"epoch {epoch} here"
                + (
                    "; snapshots of both cover it, so both were committed"
                    if committed
                    else f"; what {log} holds from there on was not committed and will be truncated"
                ),
                before={"log": primary, "epoch": epoch},
                after={"log": log, "epoch": other_epoch},
                offset=offset,
                severity=Severity.ERROR if committed else Severity.INFO,
            )
