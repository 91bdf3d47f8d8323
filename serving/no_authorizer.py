"""ACL APIs of a node without an authorizer.

DescribeAcls (key 29), CreateAcls (key 30), DeleteAcls (key 31), versions 1-3. The answer is
SECURITY_DISABLED, for the whole request or for each of its entries, as from a Kafka node without an
authorizer. Both roles serve these APIs: tools send them to a broker, or to a controller with
--bootstrap-controller.
"""

from __future__ import annotations

from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext

MIN_VERSION: Final = 1
MAX_VERSION: Final = 3

NO_AUTHORIZER: Final = (
    "No authorizer is configured: every principal may perform every operation on this node"
)
_CODE: Final = ErrorCode.SECURITY_DISABLED


def register(table: HandlerTable) -> None:
    """Register the three APIs in `table`."""
    for api, handle in (
        (ApiKey.DESCRIBE_ACLS, _describe),
        (ApiKey.CREATE_ACLS, _create),
        (ApiKey.DELETE_ACLS, _delete),
    ):
        table.register(api, handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


def _describe(_context: RequestContext, _request: DescribeAclsRequest) -> Reply:
    return DescribeAclsResponse(error_code=_CODE, error_message=NO_AUTHORIZER)


def _create(_context: RequestContext, request: CreateAclsRequest) -> Reply:
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(error_code=_CODE, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )


def _delete(_context: RequestContext, request: DeleteAclsRequest) -> Reply:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(error_code=_CODE, error_message=NO_AUTHORIZER)
            for _ in request.filters
        ]
    )
