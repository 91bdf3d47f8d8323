"""Records of `__remote_log_metadata` that were committed and lost (fault "tier topic cut").

The judge of tiers uses these losses to know the promises that do not hold any more:

- Brokers may have deleted local segments whose copies only the lost records named. The promises of
  such a topic are waived.
- Objects of copies that no record names stay in the store (`tier rebuild` finds them).
- A deletion whose records were lost is repeated.

In the end every broker has the state of the remaining records, and every local segment has a copy
again (S2, S6, S9).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from simulation.judges.tier_truth import Copy, TierTruth
from simulation.world.invariants import Key


@dataclass
class TierLosses:
    """The losses of a run; empty if no record was lost."""

    copies: dict[bytes, Copy] = field(default_factory=dict)
    """Copies of which a record was lost, in their state before."""
    keys: set[Key] = field(default_factory=set)
    """Partitions of these copies, and partitions that lost a record of their removal."""
    gone_to: dict[Key, int] = field(default_factory=dict)
    """Offset below which records may be on no disk and in no copy."""

    def note(self, before: TierTruth, after: TierTruth) -> None:
        """Enter the state of the copies before and after a loss."""
        for segment_id, copy in before.copies.items():
            now = after.copies.get(segment_id)
            if now is None or now.state != copy.state:
                self.copies[segment_id] = copy
                self.keys.add(copy.key)
        self.keys |= {key for key, how in before.removed.items() if after.removed.get(key) != how}

    def start_of(self, key: Key, start: int) -> int:
        """Return the first offset from `start` on that is still promised."""
        return max(start, self.gone_to.get(key, start))

    def explains(self, key: Key, offset: int) -> bool:
        """Return whether a copy of which a record was lost had this offset."""
        return any(
            copy.key == key and copy.first <= offset <= copy.last for copy in self.copies.values()
        )

    def names(self, named: Collection[str]) -> set[str]:
        """Return the objects of these copies that no copy names any more: they may still exist."""
        return {name for copy in self.copies.values() for name in copy.names} - set(named)
