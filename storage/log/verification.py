"""Guards of transactions: proof that the transaction coordinator has verified a producer (KIP-890).

A transaction that is not open in a log may only begin there with a guard. The leader creates it
when it sends the verification request, and passes it to the append that the request was made for.
A late batch of a producer whose transaction has ended has none, so it leaves no hanging transaction
(T6).

There is one guard per producer and log. It belongs to a producer epoch and a leader epoch, so it
does not outlive a resignation. It ends with the first batch of its transaction, with an end marker,
a newer producer epoch, the expiry of its producer, a truncation and a restart.
"""

from __future__ import annotations

from typing import Final


class TransactionGuard:
    """The guard of one producer in one log. Only the object itself counts, not its content."""

    __slots__ = ("leader_epoch", "producer_epoch")

    def __init__(self, producer_epoch: int, leader_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.leader_epoch = leader_epoch


NO_VERIFICATION: Final = TransactionGuard(-1, -1)
"""Passed by appends whose transactions need no verification."""


class TransactionGuards:
    """The guards of one log, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, TransactionGuard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int, producer_epoch: int, leader_epoch: int) -> TransactionGuard:
        """Return the producer's guard in these epochs; a new one replaces that of other epochs."""
        guard = self._guards.get(producer_id)
        if guard is None or (guard.producer_epoch, guard.leader_epoch) != (
            producer_epoch, leader_epoch,
        ):  # fmt: skip
            guard = self._guards[producer_id] = TransactionGuard(producer_epoch, leader_epoch)
        return guard

    def verifies(
        self,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        guard: TransactionGuard | None,
    ) -> bool:
        """Return whether `guard` allows the producer to begin a transaction."""
        if guard is NO_VERIFICATION:
            return True
        return (
            guard is not None
            and self._guards.get(producer_id) is guard
            and (guard.producer_epoch, guard.leader_epoch) == (producer_epoch, leader_epoch)
        )

    def remove(self, producer_id: int) -> None:
        """Remove the producer's guard, if it has one."""
        self._guards.pop(producer_id, None)

    def clear(self) -> None:
        """Remove the guards of all producers."""
        self._guards.clear()
