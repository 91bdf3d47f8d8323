"""Outcomes of a decision about a transactional id."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from broker.coordinators.txn.transaction import Transaction
from protocol.batch.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode


class Refused(NamedTuple):
    """Nothing changes; the client gets an error."""

    code: ErrorCode


class Unchanged(NamedTuple):
    """The request has already had its effect. The client gets this id and epoch."""

    producer_id: int
    epoch: int


class Changed(NamedTuple):
    """`after` must be appended. The client gets its reply once that is committed: an error code, or
    id and epoch."""

    after: Transaction
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    code: ErrorCode = ErrorCode.NONE


class ProducerIdNeeded(NamedTuple):
    """The decision must be repeated with a new producer id."""


Outcome: TypeAlias = Refused | Unchanged | Changed | ProducerIdNeeded


def fenced_code(code: ErrorCode, version: int, known_from: int) -> ErrorCode:
    """Return the error code for a client: INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED before
    version `known_from` of the API, which is 4 of InitProducerId and 2 of the others (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < known_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
