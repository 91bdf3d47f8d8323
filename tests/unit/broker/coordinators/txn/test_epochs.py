"""Laws of the epochs over random requests, aborts and failovers of one transactional id."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinators.txn.ending import completed, decide_abort, decide_end
from broker.coordinators.txn.init_producer import InitProducer, decide_init
from broker.coordinators.txn.outcome import Changed, Unchanged
from broker.coordinators.txn.partitions import decide_add
from broker.coordinators.txn.records import TransactionRecord, encode_record, parse_record
from broker.coordinators.txn.states import PREPARING, TxnState
from broker.coordinators.txn.transaction import Transaction
from tests.unit.broker.coordinators.txn.values import A0, B0

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["init", "resume", "add", "commit", "abort", "timeout", "failover", "old"]),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=30,
)


class World:
    """One transactional id and all identities that clients got."""

    def __init__(self, epoch: int) -> None:
        self.ids = count(100)
        self.now_ms = 0
        self.level = 2
        self.txn: Transaction | None = None
        self.given: list[tuple[int, int]] = []
        self.take(self.init(InitProducer(10)))
        assert self.txn is not None
        self.txn = self.txn._replace(epoch=epoch)
        self.given = [self.txn[:2]]

    def init(self, asked: InitProducer) -> Any:
        return decide_init(
            self.txn,
            asked,
            level=self.level,
            in_flight=False,
            new_producer_id=next(self.ids),
            now_ms=self.now_ms,
        )

    def end(self, identity: tuple[int, int], *, commit: bool) -> Any:
        return decide_end(
            self.txn,
            *identity,
            commit=commit,
            version=5 if self.level == 2 else 4,
            in_flight=False,
            new_producer_id=next(self.ids),
            now_ms=self.now_ms,
        )

    def do(self, what: str, which: int, level: int) -> None:
        self.now_ms += 1
        self.level = level
        identity = self.given[-1 - min(which, len(self.given) - 1)]
        outcome: Any = None
        if what == "init":
            outcome = self.init(InitProducer(10))
        elif what == "resume":
            outcome = self.init(InitProducer(10, *identity))
        elif what == "add":
            outcome = decide_add(
                self.txn,
                *identity,
                [A0, B0][: which + 1],
                client_version=level,
                in_flight=False,
                now_ms=self.now_ms,
            )
        elif what in ("commit", "abort"):
            outcome = self.end(identity, commit=what == "commit")
        elif self.txn is not None and what == "failover":
            _, value = encode_record(TransactionRecord("t", self.txn), level)
            loaded = parse_record(b"\x00\x00\x00\x01t", value)
            assert isinstance(loaded, TransactionRecord)
            self.txn = loaded.value
        elif self.txn is not None and self.txn.state is TxnState.ONGOING:
            outcome = decide_abort(self.txn, level, next(self.ids), self.now_ms)
        self.take(outcome)
        if which and self.txn is not None and self.txn.state in PREPARING:
            self.take(Changed(completed(self.txn, self.now_ms)))

    def take(self, outcome: Any) -> None:
        if isinstance(outcome, Changed):
            before, self.txn = self.txn, outcome.after
            if before is not None:
                self.check(before, outcome.after)
        if isinstance(outcome, Changed | Unchanged) and outcome.producer_id >= 0:
            self.given.append((outcome.producer_id, outcome.epoch))

    def check(self, before: Transaction, after: Transaction) -> None:
        """T3: epochs of a producer id never decrease, and a new producer id starts at 0."""
        if after.producer_id == before.producer_id:
            assert before.epoch <= after.epoch <= 32_767
        else:
            assert after.epoch == 0 and after.producer_id > before.producer_id
        if after.state in PREPARING and after.client_version == 2:
            # KIP-1228: a leader accepts only a marker of a higher epoch, up to the last one.
            assert after.epoch > before.epoch or before.epoch == 32_767
        assert bool(after.partitions) <= (after.state in (TxnState.ONGOING, *PREPARING))


EPOCHS = st.sampled_from([0, 7, 32_764, 32_765, 32_766])


@given(EPOCHS, STEPS, st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_no_client_gets_the_reserved_epoch_at_one_level(
    epoch: int, steps: list[tuple[str, int, int]], level: int
) -> None:
    """T3: the coordinator can always fence."""
    world = World(epoch)
    for what, which, _ in steps:
        world.do(what, which, level)
    assert all(epoch < 32_767 for _, epoch in world.given)


@given(EPOCHS, STEPS)
@settings(max_examples=200, deadline=None)
def test_epochs_never_decrease_while_the_level_changes(
    epoch: int, steps: list[tuple[str, int, int]]
) -> None:
    """T3, KAFKA-18227: `World.check` runs after each change."""
    world = World(epoch)
    for step in steps:
        world.do(*step)
