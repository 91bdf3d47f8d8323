"""Access control lists without an authorizer."""

from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.transport.dispatch import HandlerTable
from serving import no_authorizer


def ask(request: Any, version: int) -> Any:
    table = HandlerTable()
    no_authorizer.register(table)
    entry = table.entries[ApiKey(request.API_KEY)]
    context: Any = None
    reply: Any = entry.handler(context, request)
    return decode(entry.response, encode(reply, version), version)[0]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_acl_response_has_security_disabled(version: int) -> None:
    described = ask(DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert "authorizer" in described.error_message
    creations = [CreateAclsRequest.AclCreation(), CreateAclsRequest.AclCreation()]
    created = ask(CreateAclsRequest(creations=creations), version)
    assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    filters = [DeleteAclsRequest.DeleteAclsFilter()]
    deleted = ask(DeleteAclsRequest(filters=filters), version)
    assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
