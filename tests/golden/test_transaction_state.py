"""Records and transitions of transactional ids compared with those of Apache Kafka 4.4.0.

`transactions/TransactionState.java` recorded `transactions/kafka-4.4.0.txt` with Kafka's classes. A
step is an event, a state, and the epochs, producer ids and client version before it; then all
fields after it, or Kafka's exception.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.coordinators.txn.ending import completed, decide_abort, decide_end
from broker.coordinators.txn.init_producer import InitProducer, decide_init
from broker.coordinators.txn.outcome import Changed, Refused
from broker.coordinators.txn.partitions import decide_add
from broker.coordinators.txn.records import TransactionRecord, encode_record, parse_record
from broker.coordinators.txn.states import IDLE, TxnState
from broker.coordinators.txn.transaction import TopicPartition, Transaction

RECORDED = (Path(__file__).parent / "transactions/kafka-4.4.0.txt").read_text().splitlines()
ID, PREVIOUS, NEW, START_MS, NOW_MS = 1_000, 999, 2_000, 50_000, 60_000
OLD, ADDED = TopicPartition("topic-a", 3), TopicPartition("topic-b", 0)
USED_UP = "IllegalStateException"
"""Kafka's InitProducerId if the epochs are used up and the client names another one."""


def recorded(kind: str) -> list[list[str]]:
    """Return the words of all lines of this kind."""
    lines = [line.split(" ") for line in RECORDED]
    return [words for first, *words in lines if first == kind]


def before(state: str, **fields: Any) -> Transaction:
    found = TxnState(state)
    return Transaction(
        producer_id=ID,
        previous_producer_id=PREVIOUS,
        state=found,
        start_ms=-1 if found is TxnState.EMPTY else START_MS,
        partitions=frozenset() if found in IDLE else frozenset({OLD}),
        **fields,
    )


def shown(txn: Transaction) -> list[str]:
    """Return the fields in the order of the recorded ones."""
    numbers = (txn.producer_id, txn.previous_producer_id, txn.next_producer_id)
    numbers += (txn.epoch, txn.last_epoch, txn.timeout_ms)
    ends = (len(txn.partitions), txn.start_ms, txn.update_ms, txn.client_version)
    return [*map(str, numbers), txn.state.value, *map(str, ends)]


@pytest.mark.parametrize("words", recorded("value"), ids=" ".join)
def test_record_has_the_bytes_of_kafka(words: list[str]) -> None:
    level, state, client, next_id, value = words
    txn = before(
        state,
        epoch=7,
        timeout_ms=60_000,
        update_ms=NOW_MS,
        next_producer_id=int(next_id),
        client_version=int(client),
    )
    ((name, key),) = recorded("key")
    record = TransactionRecord(name, txn)
    assert encode_record(record, int(level)) == (bytes.fromhex(key), bytes.fromhex(value))
    if int(level):
        assert parse_record(bytes.fromhex(key), bytes.fromhex(value)) == record


def stepped(event: str, txn: Transaction) -> Any:
    """Return the outcome of an event, or the value after it."""
    name, _, number = event.partition(":")
    if name == "complete":
        return completed(txn, NOW_MS)
    if name == "fence":
        return decide_abort(txn, int(number), NEW, NOW_MS)
    how: dict[str, Any] = {"in_flight": False, "now_ms": NOW_MS}
    if name == "init":
        identity = () if int(number) < 0 else (ID, int(number))
        asked = InitProducer(20_000, *identity)
        return decide_init(txn, asked, level=2, new_producer_id=NEW, **how)
    if name == "add":
        return decide_add(txn, ID, txn.epoch, [ADDED], client_version=int(number), **how)
    version = 5 if number == "2" else 4
    commit = name == "commit"
    return decide_end(
        txn, ID, txn.epoch, commit=commit, version=version, new_producer_id=NEW, **how
    )


@pytest.mark.parametrize("words", recorded("step"), ids=" ".join)
def test_transition_has_the_fields_of_kafka(words: list[str]) -> None:
    event, state, epoch, last_epoch, next_id, client, _, *after = words
    txn = before(
        state,
        epoch=int(epoch),
        timeout_ms=30_000,
        update_ms=START_MS,
        last_epoch=int(last_epoch),
        next_producer_id=int(next_id),
        client_version=int(client),
    )
    outcome = stepped(event, txn)
    if after == ["ProducerFencedException"]:
        assert isinstance(outcome, Refused) and outcome.code.name == "PRODUCER_FENCED"
    elif after == [USED_UP]:
        # The same as for any other epoch: a repeat gets its answer, others are fenced.
        named = int(event.partition(":")[2])
        assert isinstance(outcome, Changed if named == txn.last_epoch else Refused)
    elif after == ["IllegalArgumentException"]:
        # Kafka's epoch overflows; here the last epoch ends the transaction.
        assert isinstance(outcome, Changed) and outcome.after.epoch == 32_767
    else:
        assert shown(outcome.after if isinstance(outcome, Changed) else outcome) == after
