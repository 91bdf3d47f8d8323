"""Records of `__remote_log_metadata` that were committed and lost (fault "tier topic cut").

The judge of tiers goes by it where something is not promised any more.

Segments may have left the disks by records that are lost, before their brokers learn of it: such a
topic is given up. Objects of copies that no record names stay in the store (`tier rebuild` finds
them). A deletion whose records were lost is done again. In the end every broker knows what the
records say, and all that is on disks has copies again (S2, S6, S9).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from simulation.judges.tier_truth import Copy, TierTruth
from simulation.world.invariants import Key


@dataclass
class TierLosses:
    """See the module. All is empty where nothing was lost."""

    copies: dict[bytes, Copy] = field(default_factory=dict)
    """Those of which a record was lost, as they were before."""
    keys: set[Key] = field(default_factory=set)
    """Their partitions, and those of which a record of the removal was lost."""
    gone_to: dict[Key, int] = field(default_factory=dict)
    """Below this offset records may be on no disk and in no copy."""

    def note(self, before: TierTruth, after: TierTruth) -> None:
        """The records tell this now, and told that before."""
        for segment_id, copy in before.copies.items():
            now = after.copies.get(segment_id)
            if now is None or now.state != copy.state:
                self.copies[segment_id] = copy
                self.keys.add(copy.key)
        self.keys |= {key for key, how in before.removed.items() if after.removed.get(key) != how}

    def start_of(self, key: Key, start: int) -> int:
        """Return the first offset from `start` on that is promised still."""
        return max(start, self.gone_to.get(key, start))

    def explains(self, key: Key, offset: int) -> bool:
        """Return whether a copy of which a record was lost had this offset."""
        return any(
            copy.key == key and copy.first <= offset <= copy.last for copy in self.copies.values()
        )

    def names(self, named: Collection[str]) -> set[str]:
        """Return the objects of these copies that no copy names any more: they may be there."""
        return {name for copy in self.copies.values() for name in copy.names} - set(named)
