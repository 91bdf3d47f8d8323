"""FindCoordinator (key 10), versions 0-6.

Behaviour: for a group, the broker that leads its partition of `__consumer_offsets`, with its
address on the client's listener. The first request creates the topic. While the partition has no
leader with an address there, the error is COORDINATOR_NOT_AVAILABLE, and clients retry.

Transactions are not implemented: a transactional id is answered CLUSTER_AUTHORIZATION_FAILED with a
message that names the reason. Only this code ends every client and shows the message. librdkafka
ends only for this code and TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and retries indefinitely after
any other. For the latter the Java client shows a text of its own; for a code that it does not
expect it shows the broker's. Share groups are not implemented either: INVALID_REQUEST, as for an
unknown key type.

Versions: 1 key type, 4 several keys (KIP-699), 5 TRANSACTION_ABORTABLE (KIP-890, never sent), 6
share groups (KIP-932).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from broker.coordinators.cached_topics import CoordinatorAddress
from broker.coordinators.coordinator_log import CoordinatorLog
from broker.coordinators.partitioner import partition_for
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.clock import Clock
from runtime.log import RateLimited, get_logger

MIN_VERSION: Final = 0
MAX_VERSION: Final = 6
BATCHES_SINCE: Final = 4

NO_TRANSACTIONS: Final = (
    "Kraftbox does not support transactions; no permission is missing. Leave out "
    "transactional.id; in Kafka Streams, Connect and Flink use at-least-once."
)
CREATION_WAIT_S: Final = 2.0
"""Longest wait for the controller: responses of a connection go out in order, so others wait
behind."""

_LOG_EVERY_MS: Final = 60_000.0

_log = get_logger("broker.apis.find_coordinator")


class KeyType(IntEnum):
    """Kind of coordinator that a client looks for."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class CoordinatorDirectory(Protocol):
    """Lookup of the leaders of the group coordinators' topic."""

    def leader_address(self, partition: int, listener: str) -> CoordinatorAddress | None:
        """Return the address of the partition's leader on `listener`, or None without one."""


class _Answer(NamedTuple):
    address: CoordinatorAddress
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


_SUCCESS_MESSAGE: Final = "NONE"
"""Kafka's message before version 4 for a success; from version 4 on the text is empty."""
_NOWHERE: Final = CoordinatorAddress(-1, "", -1)
_NOT_AVAILABLE: Final = _Answer(
    _NOWHERE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "The coordinator's partition has no leader.",
)


class FindCoordinator:
    """The handler. It answers inline except when the topic has to be created first."""

    def __init__(
        self,
        log: CoordinatorLog,
        directory: CoordinatorDirectory,
        clock: Clock,
    ) -> None:
        self._store = log
        self._directory = directory
        self._limit = RateLimited(clock, _LOG_EVERY_MS)

    def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> Reply:
        if request.key_type == KeyType.GROUP and self._store.partition_count() is None:
            return self._after_creation(context, request)
        return self._respond(context, request)

    async def _after_creation(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        keys = _keys(context, request)
        try:
            async with asyncio.timeout(CREATION_WAIT_S):
                await self._store.ensure_topic()
        except TimeoutError:
            return self._response(context, keys, [_NOT_AVAILABLE] * len(keys))
        except ApiError as error:
            why = f"Cannot create the coordinators' topic: {error}"
            answer = _NOT_AVAILABLE._replace(message=why)
            return self._response(context, keys, [answer] * len(keys))
        return self._respond(context, request)

    def _respond(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        keys = _keys(context, request)
        answers = [self._answer(context, request.key_type, key) for key in keys]
        return self._response(context, keys, answers)

    def _answer(self, context: RequestContext, key_type: int, key: str) -> _Answer:
        if key_type == KeyType.GROUP:
            return self._of_group(context, key)
        if key_type == KeyType.TRANSACTION:
            self._log_refusal(context, key)
            return _Answer(_NOWHERE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        what = "Share groups are" if key_type == KeyType.SHARE else f"Key type {key_type} is"
        return _Answer(_NOWHERE, ErrorCode.INVALID_REQUEST, f"{what} not supported.")

    def _of_group(self, context: RequestContext, group_id: str) -> _Answer:
        count = self._store.partition_count()
        address = None
        if count is not None:
            partition = partition_for(group_id, count)
            address = self._directory.leader_address(partition, context.listener)
        if address is None:
            return _NOT_AVAILABLE
        return _Answer(address)

    def _log_refusal(self, context: RequestContext, transactional_id: str) -> None:
        held_back = self._limit.admit(transactional_id)
        if held_back is not None:
            _log.warning(
                "a transactional producer was refused: transactions are not built",
                transactional_id=transactional_id,
                client_id=context.client_id,
                client_host=context.client_host,
                lines_held_back=held_back,
            )

    @staticmethod
    def _response(
        context: RequestContext, keys: Sequence[str], answers: Sequence[_Answer]
    ) -> FindCoordinatorResponse:
        if context.api_version < BATCHES_SINCE:
            (node_id, host, port), code, message = answers[0]
            return FindCoordinatorResponse(
                error_code=code,
                error_message=_SUCCESS_MESSAGE if message is None else message,
                node_id=node_id,
                host=host,
                port=port,
            )
        return FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponse.Coordinator(
                    key=key,
                    node_id=answer.address.node_id,
                    host=answer.address.host,
                    port=answer.address.port,
                    error_code=answer.code,
                    error_message=answer.message or "",
                )
                for key, answer in zip(keys, answers, strict=True)
            ]
        )


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> Sequence[str]:
    if context.api_version < BATCHES_SINCE:
        return (request.key,)
    return request.coordinator_keys


def register(table: HandlerTable, handler: FindCoordinator) -> None:
    table.register(
        ApiKey.FIND_COORDINATOR, handler.handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
