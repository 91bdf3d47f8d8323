"""Fetch (key 1), versions 4-19: the last is only for brokers of this implementation.

Behaviour: reads each requested partition up to the reader's limit: for a follower the log end, for
a consumer the high watermark, or with read_committed the last stable offset. In all it returns at
least one whole batch. It answers at once when `min_bytes` are available, when any partition has an
error or a divergence, or when no partition is requested. Otherwise it waits for bytes, for an
interruption (leadership, deletion) or for `max_wait_ms`, and reads again. Data far behind the log
end is first brought into memory by a worker.

A follower that requests an offset below the local log start gets OFFSET_MOVED_TO_TIERED_STORAGE.
With it and with OFFSET_OUT_OF_RANGE the response contains the log start (KIP-405).

Versions: 5 log start, 7 sessions (KIP-227), 9 leader epochs (KIP-320), 10 zstd, 11 rack, 12
divergence instead of a separate OffsetForLeaderEpoch, 13 topic ids, 15 replica state with broker
epoch (KIP-903), 16 leaders (KIP-951), 17 directory ids, 18 the follower's high watermark
(KIP-1166), 19 the follower's local log (KIP-1303). Batches are sent as they are stored at every
version: like Kafka since 4.0, a broker converts no batch and does not check its codec. Clients that
request version 4 may well read zstd (aiokafka before 0.14).

Authorisation: a request that names a replica id must come from that replica. The id must be among
the partition's replicas and registered, otherwise the answer is NOT_LEADER_OR_FOLLOWER. Only
requests with the broker's current epoch move its state (B32).
"""

from __future__ import annotations

from typing import Final

from broker.apis.leader_hints import LeaderHints
from broker.context import BrokerContext
from broker.fetch.handler import FetchHandler
from broker.fetch.request import is_from_follower
from protocol.api_keys import ApiKey
from protocol.private_numbers import PRIVATE_VERSIONS
from protocol.transport.dispatch import HandlerTable
from protocol.transport.own_names import Own

MIN_VERSION: Final = 4
MAX_VERSION: Final = 18
OWN_MAX_VERSION: Final = PRIVATE_VERSIONS[ApiKey.FETCH]


def register(table: HandlerTable, broker: BrokerContext) -> None:
    hints = LeaderHints(broker.metadata, broker.settings)
    handler = FetchHandler(broker, hints.add_to_fetch)
    table.register(
        ApiKey.FETCH,
        handler.handle,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        own_max_version=OWN_MAX_VERSION,
        own=Own.BROKER,
    )
    table.entries[ApiKey.FETCH].count_apart(("FetchConsumer", "FetchFollower"), is_from_follower)
