"""InitProducerId with a transactional id: epochs, fencing, resumed producers, used-up epochs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from broker.coordinators.txn.ending import completed
from broker.coordinators.txn.init_producer import InitLimits, InitProducer, decide_init, refusal
from broker.coordinators.txn.outcome import Changed, Outcome, ProducerIdNeeded
from broker.coordinators.txn.states import IDLE, PREPARING, TxnState
from broker.coordinators.txn.transaction import Transaction
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.txn.values import NEW, NOW_MS, P, transaction

FENCED = (ErrorCode.PRODUCER_FENCED,)
CONCURRENT = (ErrorCode.CONCURRENT_TRANSACTIONS,)
ANY = InitProducer(20_000)
EPOCH = 7
LIMITS = InitLimits(timeout_ms_max=900_000, two_phase=False)


def init(
    txn: Transaction | None,
    asked: InitProducer = ANY,
    *,
    level: int = 2,
    in_flight: bool = False,
    new: int | None = NEW,
) -> Outcome:
    return decide_init(
        txn, asked, level=level, in_flight=in_flight, new_producer_id=new, now_ms=NOW_MS
    )


def changed(outcome: Outcome) -> Transaction:
    """Return the value after a successful request; the client gets its id and epoch."""
    assert isinstance(outcome, Changed) and outcome.code is ErrorCode.NONE
    assert (outcome.producer_id, outcome.epoch) == outcome.after[:2]
    assert (outcome.after.state, outcome.after.partitions) == (TxnState.EMPTY, frozenset())
    assert (outcome.after.start_ms, outcome.after.update_ms) == (-1, NOW_MS)
    return outcome.after


@pytest.mark.parametrize(
    ("name", "asked", "limits", "code"),
    [
        ("", ANY, LIMITS, ErrorCode.INVALID_REQUEST),
        ("t", InitProducer(1, producer_id=5), LIMITS, ErrorCode.INVALID_REQUEST),
        ("t", InitProducer(1, epoch=5), LIMITS, ErrorCode.INVALID_REQUEST),
        ("t", InitProducer(0), LIMITS, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", InitProducer(-1), LIMITS, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", InitProducer(900_001), LIMITS, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", InitProducer(900_000), LIMITS, None),
        ("t", InitProducer(1, 5, 0), LIMITS, None),
        (
            "t",
            InitProducer(1, two_phase=True),
            LIMITS,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        ("t", InitProducer(0, two_phase=True), InitLimits(1, True), None),
        ("t", InitProducer(1, keep_prepared=True), LIMITS, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_request_that_no_state_allows_is_refused(
    name: str, asked: InitProducer, limits: InitLimits, code: ErrorCode | None
) -> None:
    """KIP-939: two-phase commit has no timeout, and prepared transactions are not kept."""
    assert refusal(name, asked, limits) is code


@pytest.mark.parametrize("asked", [ANY, InitProducer(20_000, 99, 3)])
def test_new_transactional_id_gets_a_new_producer_id(asked: InitProducer) -> None:
    """A producer that continues after its transactional id has expired is as good as a new one."""
    assert init(None, asked, new=None) == ProducerIdNeeded()
    after = changed(init(None, asked))
    assert after[:3] == (NEW, 0, 20_000)
    assert (after.last_epoch, after.previous_producer_id, after.client_version) == (-1, NEW, 0)
    assert init(None, asked, in_flight=True) == CONCURRENT


@pytest.mark.parametrize("state", sorted(IDLE, key=str))
def test_new_producer_gets_the_next_epoch(state: TxnState) -> None:
    """T3: any other producer is fenced, and cannot recognise a repeat."""
    after = changed(init(transaction(state, last_epoch=6)))
    assert (after.producer_id, after.epoch, after.last_epoch) == (P, EPOCH + 1, -1)
    assert after.timeout_ms == 20_000


def test_two_phase_producer_has_no_timeout() -> None:
    """KIP-939: its transactions stay open until it ends them."""
    after = changed(init(transaction(TxnState.EMPTY), InitProducer(5, two_phase=True)))
    assert after.timeout_ms == 2**31 - 1


@pytest.mark.parametrize("state", sorted(IDLE, key=str))
@pytest.mark.parametrize(
    ("epoch", "last_epoch", "expected"),
    [
        (EPOCH, -1, (EPOCH + 1, EPOCH)),
        (EPOCH, 6, (EPOCH + 1, EPOCH)),
        (EPOCH - 1, EPOCH - 1, (EPOCH, EPOCH - 1)),
        (EPOCH - 1, -1, None),
        (EPOCH - 2, EPOCH - 1, None),
        (EPOCH + 1, EPOCH - 1, None),
    ],
)
def test_producer_that_continues_is_recognised_by_its_epoch(
    state: TxnState, epoch: int, last_epoch: int, expected: tuple[int, int] | None
) -> None:
    """KIP-360: the present epoch is raised, the one before it is a repeat, others are fenced."""
    outcome = init(transaction(state, last_epoch=last_epoch), InitProducer(1, P, epoch))
    if expected is None:
        assert outcome == FENCED
    else:
        after = changed(outcome)
        assert (after.epoch, after.last_epoch) == expected
    other = init(transaction(state, last_epoch=last_epoch), InitProducer(1, P + 1, epoch))
    assert other == FENCED


@pytest.mark.parametrize("asked", [ANY, InitProducer(1, 5, 5)])
@pytest.mark.parametrize("state", sorted(PREPARING, key=str))
def test_transition_that_is_pending_comes_first(state: TxnState, asked: InitProducer) -> None:
    assert init(transaction(state), asked) == CONCURRENT
    for other in (TxnState.EMPTY, TxnState.ONGOING):
        assert init(transaction(other), asked, in_flight=True) == CONCURRENT


@pytest.mark.parametrize(
    ("level", "asked"), list(product((0, 1, 2), (ANY, InitProducer(1, P, EPOCH - 5))))
)
def test_open_transaction_is_aborted_first(level: int, asked: InitProducer) -> None:
    """The epoch rises once for the abort and once more for the new producer (KAFKA-19367)."""
    outcome = init(transaction(), asked, level=level)
    assert isinstance(outcome, Changed)
    assert outcome.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (outcome.producer_id, outcome.epoch) == (-1, -1)
    assert (outcome.after.state, outcome.after.epoch) == (TxnState.PREPARE_ABORT, EPOCH + 1)
    assert init(transaction(), InitProducer(1, P + 1, EPOCH), level=level) == FENCED
    after = changed(init(completed(outcome.after, NOW_MS), level=level))
    assert after.epoch == EPOCH + 2


def test_previous_producer_id_is_known_only_with_its_last_epoch() -> None:
    """Another request with that id does not end the open transaction."""
    txn = transaction(previous_producer_id=P - 1)
    assert init(txn, InitProducer(1, P - 1, 32_765)) == FENCED
    assert isinstance(init(txn, InitProducer(1, P - 1, 32_766)), Changed)


@pytest.mark.parametrize(("level", "epoch"), list(product((0, 2), (32_766, 32_767))))
def test_open_transaction_of_the_last_epoch_ends_with_a_new_producer_id(
    level: int, epoch: int
) -> None:
    """KAFKA-19367, KAFKA-20090: no epoch above 32767; a client never gets 32767."""
    outcome = init(transaction(epoch=epoch), level=level)
    assert isinstance(outcome, Changed) and outcome.after.epoch == 32_767
    done = completed(outcome.after, NOW_MS)
    after = changed(init(done, level=level, new=NEW + 1))
    assert after[:2] == ((NEW, 1) if level == 2 else (NEW + 1, 0))
    if level == 2:
        assert init(transaction(epoch=epoch), level=2, new=None) == ProducerIdNeeded()


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize("state", sorted(IDLE, key=str))
def test_used_up_epochs_lead_to_a_new_producer_id(state: TxnState, continues: bool) -> None:
    txn = transaction(state, epoch=32_766)
    asked = InitProducer(1, P, 32_766) if continues else ANY
    assert init(txn, asked, new=None) == ProducerIdNeeded()
    after = changed(init(txn, asked))
    assert (after.producer_id, after.epoch, after.previous_producer_id) == (NEW, 0, P)
    assert after.last_epoch == (32_766 if continues else -1)
    repeat: Any = init(after, InitProducer(1, P, 32_766))
    if continues:
        assert changed(repeat)[:2] == (NEW, 0)
    else:
        assert repeat == FENCED
    assert init(after, InitProducer(1, P, 32_765)) == FENCED


def test_repeat_of_the_last_epoch_is_fenced_after_a_failover() -> None:
    """KAFKA-20357: no record has the last epoch."""
    after = changed(init(transaction(TxnState.EMPTY, epoch=32_766), InitProducer(1, P, 32_766)))
    loaded = after._replace(last_epoch=-1)
    assert init(loaded, InitProducer(1, P, 32_766)) == FENCED


def test_producer_that_continues_with_another_epoch_at_the_last_one() -> None:
    """A difference from Kafka, which returns UNKNOWN_SERVER_ERROR."""
    txn = transaction(TxnState.EMPTY, epoch=32_766, last_epoch=32_765)
    assert changed(init(txn, InitProducer(1, P, 32_765)))[:2] == (P, 32_766)
    assert init(txn, InitProducer(1, P, 32_764)) == FENCED
