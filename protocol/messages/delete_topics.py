"""DeleteTopics (API key 20), versions 1-6.

Deletes topics by name or id. Forwarded to the active controller.

Behaviour
- The response is sent when the deletion is committed; brokers remove their files afterwards.
- Entries with a repeated name or id, or with both for the same topic, fail with INVALID_REQUEST.
- Authorisation: DELETE on the topic; without DESCRIBE its existence is not disclosed.

Versions
- 4 flexible. 5 error message, THROTTLING_QUOTA_EXCEEDED. 6 by id; entries instead of names.
"""

from __future__ import annotations

from protocol.ids import ZERO_UUID
from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int16,
    int32,
    string,
    uuid,
)


class DeleteTopicsResponse(Response, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True, default=0)
    responses: list[DeletableTopicResult] = field(
        array("DeletableTopicResult"), "0+", default=FRESH
    )

    class DeletableTopicResult(Struct):
        name: str | None = field(string, "0+", nullable="6+", default="")
        topic_id: bytes = field(uuid, "6+", ignorable=True, default=ZERO_UUID)
        # UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID. TOPIC_DELETION_DISABLED:
        # delete.topic.enable=false. INVALID_REQUEST: see above. NOT_CONTROLLER: forward again.
        # TOPIC_AUTHORIZATION_FAILED.
        error_code: int = field(int16, "0+", default=0)
        error_message: str | None = field(string, "5+", nullable="5+", ignorable=True, default=None)


class DeleteTopicsRequest(
    Request[DeleteTopicsResponse],
    api_key=20,
    versions="1-6",
    flexible="4+",
    listeners=("broker", "controller"),
):
    topics: list[DeleteTopicState] = field(array("DeleteTopicState"), "6+", default=FRESH)
    topic_names: list[str] = field(array(string), "0-5", ignorable=True, default=FRESH)
    timeout_ms: int = field(int32, "0+", default=0)

    class DeleteTopicState(Struct):
        # Null if the request has the id.
        name: str | None = field(string, "6+", nullable="6+", default=None)
        topic_id: bytes = field(uuid, "6+", default=ZERO_UUID)
