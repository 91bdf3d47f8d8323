"""Decisions of a shard of transactions, their effects and events."""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinators.runtime import decision
from broker.coordinators.txn.records import TransactionRecord
from broker.coordinators.txn.transaction import TopicPartition


class MarkersDue(NamedTuple):
    """Effect: write the end marker of a transaction to its partitions.

    `coordinator_epoch` and `serial` identify the request: results for an earlier epoch, or for
    another transition of the transactional id, do not count (KAFKA-16352). `client_version` is the
    transaction version that the marker carries (KIP-1228).
    """

    transactional_id: str
    serial: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    client_version: int
    partitions: frozenset[TopicPartition]


class ProducerFenced(NamedTuple):
    """Effect: log that a producer was fenced and its transaction is being aborted."""

    transactional_id: str
    producer_id: int
    epoch: int
    reason: str


class Completion(NamedTuple):
    """Event: the record of a completed transaction was appended."""

    transactional_id: str
    serial: int


class Decision(decision.Decision[TransactionRecord, Completion]):
    """Result of one call of a shard of transactions."""

    __slots__ = ()
