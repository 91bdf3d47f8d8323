"""CreateTopics (key 19), versions 2-7.

Behaviour: each topic succeeds or fails alone; -1 stands for `num.partitions` and
`default.replication.factor`; with validate_only nothing is written. Partitions are placed across
racks, or as the request assigns them.

Versions: 5 returns number of partitions, replication factor and configurations; 7 the topic id.

Errors per topic: INVALID_TOPIC_EXCEPTION (name, or a name that differs only in `.` and `_`),
TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR (too few brokers),
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST (named twice, counts together with an
assignment, or the metadata topic), THROTTLING_QUOTA_EXCEEDED (from version 6 on, KIP-599). For all
topics: POLICY_VIOLATION (over 10,000 records), REQUEST_TIMED_OUT (not committed in time; it may be
later), NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from controller.topics.create import TopicOutcome, decide_create_topics
from controller.writer.mutations import submit_within_quota
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from runtime.config import ConfigValue

MIN_VERSION = 2
MAX_VERSION = 7
STRICT_VERSION = 6
"""First version in which a client over its quota is refused (KIP-599)."""


_Entries: TypeAlias = dict[int, list[CreateTopicsResponse.CreatableTopicConfigs]]
"""By `id()` of the configuration dict; the outcomes keep it alive."""


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: CreateTopicsRequest) -> Reply:
        return submit_within_quota(
            controller,
            context,
            lambda view, spending: decide_create_topics(view, request, spending),
            _response,
            strict_from=STRICT_VERSION,
            fail=lambda error: _failed(request, error),
            timeout_ms=request.timeout_ms,
        )

    table.register(ApiKey.CREATE_TOPICS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _response(outcomes: Iterable[TopicOutcome]) -> CreateTopicsResponse:
    # Topics with the same overrides share their response entries.
    entries: _Entries = {}
    return CreateTopicsResponse(topics=[_result(outcome, entries) for outcome in outcomes])


def _failed(request: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return _response(TopicOutcome(name, error) for name in names)


def _result(outcome: TopicOutcome, entries: _Entries) -> CreateTopicsResponse.CreatableTopicResult:
    created = outcome.result
    if isinstance(created, ApiError):
        return CreateTopicsResponse.CreatableTopicResult(
            name=outcome.name, error_code=created.code, error_message=created.text
        )
    configs = entries.get(id(created.configs))
    if configs is None:
        configs = [_config(name, value) for name, value in created.configs.items()]
        entries[id(created.configs)] = configs
    return CreateTopicsResponse.CreatableTopicResult(
        name=outcome.name,
        topic_id=created.topic_id,
        error_message=None,
        num_partitions=created.partition_count,
        replication_factor=created.replication_factor,
        configs=configs,
    )


def _config(name: str, value: ConfigValue) -> CreateTopicsResponse.CreatableTopicConfigs:
    return CreateTopicsResponse.CreatableTopicConfigs(
        name=name,
        value=value.value,
        config_source=value.source,
        is_sensitive=value.key.sensitive,
    )
