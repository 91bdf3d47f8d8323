"""InitProducerId (API key 22), versions 0-6; version 6 is unstable.

Assigns id and epoch to a producer: the identity that makes retries safe.

Behaviour
- Without a transactional id, any broker assigns an id from its block (AllocateProducerIds) and
  epoch 0; nothing is stored.
- With one, the request goes to the transaction coordinator, which fences older producers with the
  same transactional id.
- If the request has an id and epoch (3+), the coordinator increases the epoch instead of assigning
  a new id.
- Authorisation: WRITE on the transactional id, or IDEMPOTENT_WRITE on the cluster or WRITE on any
  topic.

Versions
- 2 flexible. 3 resume with id and epoch (KIP-360). 4 PRODUCER_FENCED. 5 TRANSACTION_ABORTABLE.
- 6 two-phase commit (KIP-939), unstable in 4.3: not offered.
"""

from __future__ import annotations

from protocol.schema import Request, Response, boolean, field, int16, int32, int64, string


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True, default=0)
    # COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR,
    # CONCURRENT_TRANSACTIONS: retry, here or at another broker. INVALID_PRODUCER_EPOCH,
    # PRODUCER_FENCED: a newer producer exists. TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    # CLUSTER_AUTHORIZATION_FAILED: fatal.
    error_code: int = field(int16, "0+", default=0)
    # -1 with an error.
    producer_id: int = field(int64, "0+", default=-1)
    producer_epoch: int = field(int16, "0+", default=0)
    ongoing_txn_producer_id: int = field(int64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = field(int16, "6+", default=-1)


class InitProducerIdRequest(
    Request[InitProducerIdResponse],
    api_key=22,
    versions="0-6",
    flexible="2+",
    listeners=("broker",),
    unstable="6",
):
    # Null for producers that are only idempotent; empty: INVALID_REQUEST.
    transactional_id: str | None = field(string, "0+", nullable="0+", default="")
    # Above transaction.max.timeout.ms: INVALID_TRANSACTION_TIMEOUT. Ignored for idempotent
    # producers.
    transaction_timeout_ms: int = field(int32, "0+", default=0)
    producer_id: int = field(int64, "3+", default=-1)
    producer_epoch: int = field(int16, "3+", default=-1)
    enable2_pc: bool = field(boolean, "6+", default=False)
    keep_prepared_txn: bool = field(boolean, "6+", default=False)
