"""Responses to requests that fail as a whole: each item has the error."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.schema import Request, Response
from serving.error_answers import error_response

CODE = ErrorCode.REQUEST_TIMED_OUT
ERROR: dict[str, Any] = {"error_code": CODE, "error_message": CODE.text}
RESOURCE: dict[str, Any] = {"resource_type": 2, "resource_name": "t"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")]),
            CreateTopicsResponse(
                topics=[CreateTopicsResponse.CreatableTopicResult(name="t", **ERROR)]
            ),
        ),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t")]
            ),
            CreatePartitionsResponse(
                results=[CreatePartitionsResponse.CreatePartitionsTopicResult(name="t", **ERROR)]
            ),
        ),
        (
            AlterConfigsRequest(resources=[AlterConfigsRequest.AlterConfigsResource(**RESOURCE)]),
            AlterConfigsResponse(
                responses=[AlterConfigsResponse.AlterConfigsResourceResponse(**RESOURCE, **ERROR)]
            ),
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[IncrementalAlterConfigsRequest.AlterConfigsResource(**RESOURCE)]
            ),
            IncrementalAlterConfigsResponse(
                responses=[
                    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                        **RESOURCE, **ERROR
                    )
                ]
            ),
        ),
    ],
    ids=["topics", "partitions", "configs", "incremental"],
)
def test_error_response_names_each_item(request_: Request[Any], expected: Response) -> None:
    assert error_response(request_, CODE, 2) == expected
