"""DescribeAcls, CreateAcls, DeleteAcls: without an authorizer there are none, and the code says so."""

from __future__ import annotations

import pytest
from kit.nodes import ask, start_node

from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.api.describe_acls import DescribeAclsRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request

ANYTHING = DescribeAclsRequest(
    resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None, operation=1,
    permission_type=1,
)  # fmt: skip


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("request_", [ANYTHING, CreateAclsRequest(creations=[]), DeleteAclsRequest(filters=[])])
def test_a_broker_without_an_authorizer_says_that_security_is_disabled(request_: Request, version: int) -> None:
    node, _, _ = start_node()
    with pytest.raises(KafkaError) as refused:
        ask(node, request_, version)
    assert refused.value.code == ErrorCode.SECURITY_DISABLED
