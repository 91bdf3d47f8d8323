"""Shell: Automatic creation of topics through the controller.

A client's topic gets the broker's defaults when `auto.create.topics.enable` is true. The creation
is started in the background: the client retries and finds the topic. The request to the controller
is made on the client's behalf, so the client's quota applies. An internal topic gets the settings
that its coordinator needs, and its caller waits. A name whose creation is in progress is not
requested twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from broker.admin.envelopes import unwrap, wrap
from broker.admin.internal_topics import InternalTopics
from broker.controller_link.channel import ControllerChannel
from broker.metadata.cache import MetadataCache
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.topic_name import INTERNAL_TOPICS
from protocol.transport.decode_queue import decode_in_slices
from protocol.transport.dispatch import RequestContext
from runtime.clock import Clock
from runtime.config import NodeConfig, keys_replication, keys_server
from runtime.log import RateLimited, get_logger
from runtime.tasks import Supervisor

CREATE_TIMEOUT_MS: Final = 30_000
NAMES_MAX: Final = 1_000
"""Limit for names in one request and creations in progress; further names must be requested
later."""

_log = get_logger("broker.topics")


class AutoTopicSettings(NamedTuple):
    """Settings of automatic topics: `internal` of the brokers' own, the others of clients'
    topics."""

    enable: bool
    num_partitions: int
    replication_factor: int
    internal: InternalTopics

    @classmethod
    def of(cls, node: NodeConfig) -> AutoTopicSettings:
        return cls(
            enable=node[keys_server.AUTO_CREATE_TOPICS_ENABLE],
            num_partitions=node[keys_server.NUM_PARTITIONS],
            replication_factor=node[keys_replication.DEFAULT_REPLICATION_FACTOR],
            internal=InternalTopics.of(node),
        )


class TopicCreator:
    """Creator of topics through the controller."""

    def __init__(
        self,
        *,
        settings: AutoTopicSettings,
        metadata: MetadataCache,
        controller: ControllerChannel,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._internal = settings.internal.by_name()
        self._metadata = metadata
        self._controller = controller
        self._supervisor = supervisor
        self._clock = clock
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._quiet = RateLimited(clock, 10_000)

    def create_soon(self, names: Iterable[str], client: RequestContext) -> None:
        """Start the creation of a client's topics, if the configuration allows it."""
        if not self._settings.enable:
            return
        room = max(NAMES_MAX - len(self._under_way), 0)
        wanted = (
            name
            for name in names
            if name not in self._under_way
            and (name not in INTERNAL_TOPICS or name in self._internal)
        )
        fresh = list(islice(wanted, room))
        if fresh:
            self._start([self._wish(name) for name in fresh], client)

    async def ensure(self, name: str) -> None:
        """Create an internal topic if it does not exist, and wait for the controller's answer.

        Raises:
            ApiError: the controller's error, or REQUEST_TIMED_OUT.
        """
        await self.ensure_as(self._wish(name))

    async def ensure_as(self, wish: CreateTopicsRequest.CreatableTopic) -> None:
        """Do the same as `ensure`, for a topic with settings given by the caller."""
        if self._metadata.topic(wish.name) is not None:
            return
        task = self._under_way.get(wish.name)
        if task is None:
            task = self._start([wish], None)
        await asyncio.shield(task)

    def _start(
        self, wishes: list[CreateTopicsRequest.CreatableTopic], client: RequestContext | None
    ) -> asyncio.Task[None]:
        names = [wish.name for wish in wishes]
        creation = self._create(wishes, client)
        task = self._supervisor.spawn("create topics", creation, fatal=False)
        for name in names:
            self._under_way[name] = task
        task.add_done_callback(lambda done: self._done(names, done))
        return task

    def _done(self, names: list[str], task: asyncio.Task[None]) -> None:
        for name in names:
            self._under_way.pop(name, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._quiet.admit(names[0]) is not None:
            _log.warning("topics not created", topics=names[:10], error=str(error))

    async def _create(
        self, wishes: list[CreateTopicsRequest.CreatableTopic], client: RequestContext | None
    ) -> None:
        request = CreateTopicsRequest(topics=wishes, timeout_ms=CREATE_TIMEOUT_MS)
        deadline_ms = self._clock.monotonic_ms() + CREATE_TIMEOUT_MS
        if client is None:
            response = await self._controller.request_until(request, deadline_ms)
        else:
            response = await self._ask_for(client, request, deadline_ms)
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise ApiError(code, result.error_message)

    async def _ask_for(
        self, client: RequestContext, request: CreateTopicsRequest, deadline_ms: float
    ) -> CreateTopicsResponse:
        version = CreateTopicsRequest.VERSIONS.last
        envelope = wrap(client, request, version)
        answer = await self._controller.request_until(envelope, deadline_ms)
        if answer.error_code or answer.response_data is None:
            raise ApiError(ErrorCode(answer.error_code), None)
        body = unwrap(client, request, version, answer.response_data)
        response, _ = await decode_in_slices(CreateTopicsResponse, body, version)
        return response

    def _wish(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        internal = self._internal.get(name)
        if internal is None:
            return CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=self._settings.num_partitions,
                replication_factor=self._settings.replication_factor,
            )
        return CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=internal.partitions,
            replication_factor=internal.replication_factor,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in internal.configs.items()
            ],
        )
