"""All transactional ids of one partition of `__transaction_state`.

The runtime runs it as a `Shard` (`broker/coordinators/runtime/shard.py` describes the order of
calls). Decisions are based on committed state, so that a client never sees a transition that may be
lost. While a transition of a transactional id is appended and not committed, requests for that id
get CONCURRENT_TRANSACTIONS.

    request -> Prepare record -> committed: reply, MarkersDue -> all written -> Complete record

The coordinator calls `markers_written` as the leaders answer. It calls `decide_timeouts` and
`decide_expired` from time to time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from broker.coordinators.log_entries import LogEntry, LogRecord
from broker.coordinators.runtime.decision import Now
from broker.coordinators.txn.decision import Completion, Decision, MarkersDue, ProducerFenced
from broker.coordinators.txn.ending import completed, decide_abort, decide_end
from broker.coordinators.txn.init_producer import InitProducer, decide_init
from broker.coordinators.txn.markers import Markers
from broker.coordinators.txn.outcome import Changed, Outcome, ProducerIdNeeded, Refused
from broker.coordinators.txn.partitions import decide_add, decide_verify
from broker.coordinators.txn.records import TransactionRecord, UnknownVersion, parse_record
from broker.coordinators.txn.states import PREPARING, TxnState
from broker.coordinators.txn.time_limits import has_expired, has_timed_out
from broker.coordinators.txn.transaction import TopicPartition, Transaction
from protocol.batch.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode, ProtocolError
from protocol.schema import Response

LOOKED_AT_PER_SLICE: Final = 500
"""Transactional ids per slice of a walk: below a millisecond. Also the maximum of tombstones in one
append."""
COMPLETION_BACKOFF_MS: Final = 1_000
"""Backoff before the record of a completed transaction is appended again after a refusal."""

Transactions: TypeAlias = Map[str, Transaction]
Respond: TypeAlias = Callable[[ErrorCode, int, int], Response]
"""Makes a response from error code, producer id and epoch."""


class _Appended(NamedTuple):
    """Transactional ids of one append, and the state after it."""

    state: Transactions
    transactional_ids: tuple[str, ...]


class TransactionShard:
    """The transactional ids of one partition.

    Args:
        leader_epoch: this broker's epoch as the leader of the partition; markers carry it.
        level: returns the cluster's `transaction.version`.
        new_producer_id: returns an id that no producer has, or None if none is available now.
    """

    def __init__(
        self,
        leader_epoch: int,
        level: Callable[[], int],
        new_producer_id: Callable[[], int | None],
    ) -> None:
        self.appended: Transactions = Map()
        self.committed_state: Transactions = Map()
        self.markers = Markers(leader_epoch)
        self.skipped: list[tuple[int, UnknownVersion]] = []
        """Offset and version of the first records of later releases."""
        self._level = level
        self._new_producer_id = new_producer_id
        self._unsettled: deque[_Appended] = deque()
        self._open: dict[str, None] = {}
        self._completions: list[tuple[float, str, int]] = []
        """Heap of completions to append again: deadline, transactional id, serial."""

    # -- loading

    def replay(self, entry: LogEntry) -> None:
        """Replay one entry of the log. Raises ProtocolError, with the offset, if it cannot be
        parsed."""
        if not isinstance(entry, LogRecord) or entry.key is None:
            return
        try:
            record = parse_record(entry.key, entry.value)
        except ProtocolError as error:
            raise ProtocolError(f"transaction record at offset {entry.offset}: {error}") from error
        if isinstance(record, TransactionRecord):
            self.appended = _with(self.appended, record)
        elif len(self.skipped) < LOOKED_AT_PER_SLICE:
            self.skipped.append((entry.offset, record))

    def replayed(self) -> Iterator[str]:
        """Make the replayed state visible: all of it is committed. Returns: the ids to `revive`."""
        self.committed_state = self.appended
        return iter(self.appended)

    def revive(self, key: str, now: Now) -> int:
        """Resume a transaction that the coordinator before has left open or in a Prepare state."""
        state = self.committed_state[key].state
        if state in PREPARING:
            self.markers.begin(key, self.committed_state[key])
            self.markers.queue(key)
        elif state is TxnState.ONGOING:
            self._open[key] = None
        return 0

    def epoch_raised(self, leader_epoch: int, now: Now) -> Decision:
        """Request all markers that are not written yet again, with the new epoch."""
        self.markers.raise_epoch(leader_epoch)
        return Decision()

    # -- outcomes of decisions

    def apply(
        self, records: Sequence[TransactionRecord], base_offset: int, now: Now
    ) -> Transactions:
        for record in records:
            self.appended = _with(self.appended, record)
        ids = tuple(record.transactional_id for record in records)
        self._unsettled.append(_Appended(self.appended, ids))
        return self.appended

    def committed(self, state: Transactions, decision: Decision | None, now: Now) -> Decision:
        """Process the commit of the records that led to `state`. Returns: a decision that requests
        markers, or completes a transaction without partitions."""
        follow = Decision()
        self.committed_state = state
        if self._unsettled and self._unsettled[0].state is state:
            for transactional_id in self._unsettled.popleft().transactional_ids:
                self._settled(transactional_id, follow, now)
        return follow

    def _settled(self, transactional_id: str, follow: Decision, now: Now) -> None:
        self._open.pop(transactional_id, None)
        txn = self.committed_state.get(transactional_id)
        if txn is None or txn.state not in PREPARING:
            self.markers.end(transactional_id)
            if txn is not None and txn.state is TxnState.ONGOING:
                self._open[transactional_id] = None
            return
        due = self.markers.begin(transactional_id, txn)
        if due.partitions:
            follow.effects.append(due)
        else:
            # One append has one record of a Prepare state, so this event is the only one.
            self._complete(follow, transactional_id, due.serial, now)

    def failed(self, decision: Decision, code: ErrorCode, now: Now) -> Decision:
        """Process a refused append. The record of a completed transaction is appended again
        later, as often as necessary."""
        if decision.event is not None:
            again_ms = now.monotonic_ms + COMPLETION_BACKOFF_MS
            heapq.heappush(self._completions, (again_ms, *decision.event))
        return Decision()

    def timed_out(self, decision: Decision, code: ErrorCode, now: Now) -> Decision:
        return Decision()

    def abandon(self, code: ErrorCode) -> Decision:
        return Decision()

    # -- time

    def next_deadline_ms(self) -> float | None:
        if self.markers.has_queued:
            return 0.0
        return self._completions[0][0] if self._completions else None

    def on_deadline(self, now: Now) -> Decision | None:
        """Request the markers of one transaction, or append one completion again."""
        queued = self.markers.pop()
        if queued is not None:
            return self._resumed(queued, now)
        if not self._completions or self._completions[0][0] > now.monotonic_ms:
            return None
        _, transactional_id, serial = heapq.heappop(self._completions)
        decision = Decision()
        if self.markers.is_current(transactional_id, serial):
            self._complete(decision, transactional_id, serial, now)
        return decision

    def _resumed(self, transactional_id: str, now: Now) -> Decision:
        decision = Decision()
        txn = self.committed_state.get(transactional_id)
        if txn is None or txn.state not in PREPARING or self._is_in_flight(transactional_id):
            return decision  # complete, or the record of its completion is in flight
        due = self.markers.begin(transactional_id, txn)
        if due.partitions:
            decision.effects.append(due)
        else:
            self._complete(decision, transactional_id, due.serial, now)
        return decision

    def _complete(self, decision: Decision, transactional_id: str, serial: int, now: Now) -> None:
        after = completed(self.committed_state[transactional_id], now.wall_ms)
        decision.records.append(TransactionRecord(transactional_id, after))
        decision.event = Completion(transactional_id, serial)

    # -- requests

    def decide_init(
        self, transactional_id: str, asked: InitProducer, respond: Respond, now: Now
    ) -> Decision:
        """Decide an InitProducerId that `init_producer.refusal` accepts."""
        txn, level = self.committed_state.get(transactional_id), self._level()
        outcome = self._with_producer_id(
            lambda new: decide_init(
                txn,
                asked,
                level=level,
                in_flight=self._is_in_flight(transactional_id),
                new_producer_id=new,
                now_ms=now.wall_ms,
            )
        )
        decision = self._decision(transactional_id, outcome, respond)
        if isinstance(outcome, Changed) and outcome.after.state is TxnState.PREPARE_ABORT:
            fenced = outcome.after
            decision.effects.append(
                ProducerFenced(
                    transactional_id, fenced.producer_id, fenced.epoch, "a new producer started"
                )
            )
        return decision

    def decide_add(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Iterable[TopicPartition],
        client_version: int,
        respond: Respond,
        now: Now,
    ) -> Decision:
        """Decide AddPartitionsToTxn for one transaction, or AddOffsetsToTxn."""
        outcome = decide_add(
            self.committed_state.get(transactional_id),
            *producer,
            partitions,
            client_version=client_version,
            in_flight=self._is_in_flight(transactional_id),
            now_ms=now.wall_ms,
        )
        return self._decision(transactional_id, outcome, respond)

    def decide_end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        commit: bool,
        version: int,
        respond: Respond,
        now: Now,
    ) -> Decision:
        """Decide an EndTxn of a client; `version` is that of the request."""
        outcome = self._with_producer_id(
            lambda new: decide_end(
                self.committed_state.get(transactional_id),
                *producer,
                commit=commit,
                version=version,
                in_flight=self._is_in_flight(transactional_id),
                new_producer_id=new,
                now_ms=now.wall_ms,
            )
        )
        return self._decision(transactional_id, outcome, respond)

    def verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether the producer's open transaction contains it."""
        return decide_verify(self.committed_state.get(transactional_id), *producer, partitions)

    def markers_written(
        self, due: MarkersDue, partitions: Iterable[TopicPartition], now: Now
    ) -> Decision:
        """Decide after leaders have written markers: the last one completes the transaction. A
        partition that was deleted counts as written."""
        decision = Decision()
        if self.markers.written(due, partitions) and not self._is_in_flight(due.transactional_id):
            self._complete(decision, due.transactional_id, due.serial, now)
        return decision

    # -- walks

    def decide_timeouts(self, now: Now) -> Iterator[Decision]:
        """Yield the aborts of all transactions that have timed out, in slices. The caller carries
        out each decision before it requests the next."""
        open_ids = iter(list(self._open))
        while some := list(islice(open_ids, LOOKED_AT_PER_SLICE)):
            for transactional_id in some:
                txn = self.committed_state.get(transactional_id)
                in_flight = self._is_in_flight(transactional_id)
                if txn is not None and has_timed_out(txn, in_flight, now.wall_ms):
                    yield self._timeout(transactional_id, txn, now)
            yield Decision()

    def _timeout(self, transactional_id: str, txn: Transaction, now: Now) -> Decision:
        level = self._level()
        outcome = self._with_producer_id(lambda new: decide_abort(txn, level, new, now.wall_ms))
        if not isinstance(outcome, Changed):
            return Decision()  # no producer id is available: the next walk tries again
        after = outcome.after
        fenced = ProducerFenced(
            transactional_id, after.producer_id, after.epoch, "the transaction timed out"
        )
        return Decision(records=[TransactionRecord(transactional_id, after)], effects=[fenced])

    def decide_expired(self, now: Now, expiration_ms: int) -> Iterator[Decision]:
        """Yield the tombstones of transactional ids that were not used for this time, in slices.
        The caller carries out each decision before it requests the next."""
        ids = iter(self.committed_state)
        while some := list(islice(ids, LOOKED_AT_PER_SLICE)):
            yield Decision(
                records=[
                    TransactionRecord(each, None)
                    for each in some
                    if (txn := self.committed_state.get(each)) is not None
                    and has_expired(txn, self._is_in_flight(each), now.wall_ms, expiration_ms)
                ]
            )

    # -- parts

    def _is_in_flight(self, transactional_id: str) -> bool:
        return self.appended.get(transactional_id) is not self.committed_state.get(transactional_id)

    def _with_producer_id(self, decide: Callable[[int | None], Outcome]) -> Outcome:
        """Decide, with a new producer id only if the decision needs one."""
        outcome = decide(None)
        if isinstance(outcome, ProducerIdNeeded):
            new = self._new_producer_id()
            return outcome if new is None else decide(new)
        return outcome

    def _decision(self, transactional_id: str, outcome: Outcome, respond: Respond) -> Decision:
        if isinstance(outcome, ProducerIdNeeded):
            # The broker is requesting a block of ids from the controller: the client retries.
            outcome = Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(outcome, Refused):
            return Decision(reply=respond(outcome.code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
        if not isinstance(outcome, Changed):
            return Decision(reply=respond(ErrorCode.NONE, outcome.producer_id, outcome.epoch))
        return Decision(
            reply=respond(outcome.code, outcome.producer_id, outcome.epoch),
            records=[TransactionRecord(transactional_id, outcome.after)],
            on_failure=lambda code: respond(code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
        )


def _with(state: Transactions, record: TransactionRecord) -> Transactions:
    """Return the state after a record; the tombstone of a missing id changes nothing."""
    name, value = record
    if value is not None:
        return state.set(name, value)
    return state.delete(name) if name in state else state
