"""Error responses to requests that fail as a whole, before a controller has handled them.

If a response has no top-level error, every item of the request gets the error, so that the client
can match items and errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.schema import Request, Response


def error_response(request: Request[Any], code: ErrorCode, version: int) -> Response:
    """Return a response that carries `code` for the whole request, in a form valid in `version`."""
    per_item = _PER_ITEM.get(type(request))
    if per_item is not None:
        return per_item(request, code)
    if isinstance(request, ElectLeadersRequest):
        return _elect_leaders(request, code, version)
    response: Response = request.response_class()(error_code=code)
    if hasattr(response, "error_message"):
        response.error_message = code.text
    return response


@dataclass(frozen=True, slots=True)
class _Items:
    """A response with one item for each element of a list of the request.

    source, target: names of the two lists. item: class of an item. same: fields that an item has
    in common with its element.
    """

    source: str
    target: str
    item: type[Any]
    same: tuple[str, ...]

    def __call__(self, request: Request[Any], code: ErrorCode) -> Response:
        response: Response = request.response_class()()
        items = [
            self.item(
                error_code=code,
                error_message=code.text,
                **{name: getattr(element, name) for name in self.same},
            )
            for element in getattr(request, self.source)
        ]
        setattr(response, self.target, items)
        return response


def _delete_topics(request: DeleteTopicsRequest, code: ErrorCode) -> Response:
    wanted: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=code.text
            )
            for name, topic_id in wanted
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, code: ErrorCode, version: int) -> Response:
    # Version 0 has no top-level error. An election of all partitions names none, so its response
    # cannot carry an error at all.
    return ElectLeadersResponse(
        error_code=code if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(
                        partition_id=index, error_code=code, error_message=code.text
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_quotas(request: AlterClientQuotasRequest, code: ErrorCode) -> Response:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=code.text,
                entity=[
                    AlterClientQuotasResponse.EntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_scram(request: AlterUserScramCredentialsRequest, code: ErrorCode) -> Response:
    users = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=code.text
            )
            for user in dict.fromkeys(users)
        ]
    )


_RESOURCE: Final = ("resource_type", "resource_name")
_PER_ITEM: Final[dict[type[Any], Callable[[Any, ErrorCode], Response]]] = {
    CreateTopicsRequest: _Items(
        "topics", "topics", CreateTopicsResponse.CreatableTopicResult, ("name",)
    ),
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _Items(
        "topics", "results", CreatePartitionsResponse.CreatePartitionsTopicResult, ("name",)
    ),
    AlterConfigsRequest: _Items(
        "resources", "responses", AlterConfigsResponse.AlterConfigsResourceResponse, _RESOURCE
    ),
    IncrementalAlterConfigsRequest: _Items(
        "resources",
        "responses",
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
        _RESOURCE,
    ),
    AlterUserScramCredentialsRequest: _alter_scram,
    AlterClientQuotasRequest: _alter_quotas,
}
