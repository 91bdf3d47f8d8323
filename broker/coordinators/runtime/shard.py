"""Port of the runtime to a coordinator's state: one shard per partition, and the shards' owner.

Life of a shard: `replay` for every entry of the partition, `revive` for every key of `replayed`,
then any order of decisions, `on_deadline` and `epoch_raised`. For each decision with records the
runtime calls exactly one of

- `apply` when they were appended, then `committed` or `failed`; or
- `failed` alone when they were not.

Commits come in the order of appends. After a `failed` that follows an `apply` the content of the
log is unknown: the runtime drops the shard and loads a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from broker.coordinators.log_entries import LogEntry
from broker.coordinators.runtime.decision import AnyDecision, Now
from protocol.errors import ErrorCode

D = TypeVar("D", bound=AnyDecision)


class Shard(Protocol[D]):
    """State of a coordinator in one partition. `D` is the coordinator's class of decisions. No
    method reads a clock or awaits."""

    @property
    def appended(self) -> Any:
        """Hard state after the last appended record; the runtime passes it to `committed` later."""

    def replay(self, entry: LogEntry) -> None:
        """Replay an entry of the log. Raises ProtocolError if it cannot be parsed."""

    def replayed(self) -> Iterable[str]:
        """Make the replayed state visible: all of it is committed. Returns: the keys to revive."""

    def revive(self, key: str, now: Now) -> int:
        """Start the live state of one key. Returns: the work it took, in small records."""

    def epoch_raised(self, leader_epoch: int, now: Now) -> D:
        """Note that this broker leads the partition in a newer epoch. The state stays: no other
        broker wrote in between. Returns: the resulting decision."""

    def apply(self, records: Sequence[Any], base_offset: int, now: Now) -> Any:
        """Replay the records of a decision, which were appended from `base_offset` on. Returns the
        hard state after them."""

    def committed(self, state: Any, decision: D | None, now: Now) -> D:
        """Process the commit of the records that led to `state`. Returns the resulting decision;
        the runtime itself sends the reply of `decision`, which is None after `timed_out`."""

    def failed(self, decision: D, code: ErrorCode, now: Now) -> D:
        """Process a failed append, before anything else happens. Returns the resulting decision."""

    def timed_out(self, decision: D, code: ErrorCode, now: Now) -> D:
        """Process a decision whose records are appended but not committed in time. `committed`
        still follows, without the decision."""

    def abandon(self, code: ErrorCode) -> D:
        """Answer every waiting request, because this broker is no longer the coordinator."""

    def next_deadline_ms(self) -> float | None:
        """Return when `on_deadline` must be called, in monotonic milliseconds; None: not at all."""

    def on_deadline(self, now: Now) -> D | None:
        """Process one timer that is due; return None when no timer is due. At one and the same
        `now` each timer is processed at most once, so that repeated calls come to an end."""


S = TypeVar("S", bound=Shard[Any])


class ShardOwner(Protocol[S]):
    """The coordinator whose shards the runtime runs."""

    def new_shard(self, partition: int, leader_epoch: int) -> S:
        """Return an empty shard of a partition that this broker leads in this epoch."""

    def perform(self, partition: int, effects: Sequence[Any]) -> None:
        """Carry out the effects of a decision. The shard is in service. The owner requests further
        decisions only later, in another event-loop iteration."""

    def loaded(self, partition: int, shard: S) -> None:
        """Note that the shard is in service."""

    def dropped(self, partition: int, shard: S) -> None:
        """Note that the shard is out of service. The partition is loaded again, unless `closed`
        follows."""

    def closed(self, partition: int) -> None:
        """Note that this broker has no shard of the partition and loads none."""
