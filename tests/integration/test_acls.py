"""ACLs at a broker without an authorizer, as raw frames: Apache Kafka 4.1 answers the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.broker import BrokerProcess
from kit.wire import Wire

from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.api.describe_acls import DescribeAclsRequest
from ottla.protocol.errors import ErrorCode

ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
DISABLED = ErrorCode.SECURITY_DISABLED
VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@VERSIONS
def test_describing_says_that_security_is_disabled(wire: Wire, version: int) -> None:
    asked = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = wire.call(asked, version)
    assert (answer.error_code, bool(answer.error_message), answer.resources) == (DISABLED, True, [])


@VERSIONS
@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_entry_that_is_added_gets_security_disabled(wire: Wire, version: int, count: int) -> None:
    entry = CreateAclsRequest.AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    answer = wire.call(CreateAclsRequest(creations=[entry] * count), version)
    assert [(one.error_code, bool(one.error_message)) for one in answer.results] == [(DISABLED, True)] * count


@VERSIONS
@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_filter_that_removes_gets_security_disabled(wire: Wire, version: int, count: int) -> None:
    one = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="t",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = wire.call(DeleteAclsRequest(filters=[one] * count), version)
    reported = [(each.error_code, bool(each.error_message), each.matching_acls) for each in answer.filter_results]
    assert reported == [(DISABLED, True, [])] * count
