"""DeleteTopics (key 20), versions 1-6.

Behaviour: deletes by name or, from version 6 on, by id; each topic succeeds or fails alone. The
brokers remove the data when they see the deletion in the metadata log. The metadata topic cannot be
deleted: it counts as unknown.

Errors per topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST (named twice, also
once by name and once by id; an entry with both or neither), THROTTLING_QUOTA_EXCEEDED (from version
5 on, KIP-599). For all topics: TOPIC_DELETION_DISABLED (INVALID_REQUEST before version 3, which
does not have it), POLICY_VIOLATION, REQUEST_TIMED_OUT, NOT_CONTROLLER.
"""

from __future__ import annotations

from controller.topics.change import DeleteOutcome, TopicKey, decide_delete_topics
from controller.writer.mutations import submit_within_quota
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION = 1
MAX_VERSION = 6
STRICT_VERSION = 5
"""First version in which a client over its quota is refused (KIP-599)."""


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: DeleteTopicsRequest) -> Reply:
        version = context.api_version
        if version >= 6:
            keys = [TopicKey(topic.name, topic.topic_id) for topic in request.topics]
        else:
            keys = [TopicKey(name) for name in request.topic_names]
        return submit_within_quota(
            controller,
            context,
            lambda view, spending: decide_delete_topics(view, keys, spending),
            lambda outcomes: DeleteTopicsResponse(responses=[_result(o) for o in outcomes]),
            strict_from=STRICT_VERSION,
            fail=lambda error: _failed(keys, _as_of(version, error)),
            timeout_ms=request.timeout_ms,
        )

    table.register(ApiKey.DELETE_TOPICS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _as_of(version: int, error: ApiError) -> ApiError:
    if version < 3 and error.code is ErrorCode.TOPIC_DELETION_DISABLED:
        return ApiError(ErrorCode.INVALID_REQUEST, error.text)
    return error


def _failed(keys: list[TopicKey], error: ApiError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            _result(DeleteOutcome(key.name, key.topic_id, error)) for key in dict.fromkeys(keys)
        ]
    )


def _result(outcome: DeleteOutcome) -> DeleteTopicsResponse.DeletableTopicResult:
    result = DeleteTopicsResponse.DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id)
    if outcome.error is not None:
        result.error_code = outcome.error.code
        result.error_message = outcome.error.text
    return result
