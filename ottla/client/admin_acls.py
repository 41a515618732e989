"""The part of an Admin that handles ACLs, the rights of principals (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

from ottla.client.admin_acl_results import Acl, AclFilter
from ottla.client.admin_client import refusals
from ottla.client.admin_settings import SettingsAdmin
from ottla.client.errors import KafkaError
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.errors import ErrorCode

_E = TypeVar("_E", bound=IntEnum)


class AclAdmin(SettingsAdmin):
    """See the module; `Admin` is the class for programs."""

    # ACLs -------------------------------------------------------------------------------------------------------

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """Return all ACLs, or those that a filter matches.

        Raises KafkaError SECURITY_DISABLED if the broker has no authorizer.
        """
        asked = wanted or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=asked.resource_type,
            resource_name_filter=asked.resource_name,
            pattern_type_filter=asked.pattern_type,
            principal_filter=asked.principal,
            host_filter=asked.host,
            operation=asked.operation,
            permission_type=asked.permission,
        )

        async def attempt() -> list[Acl]:
            answer = await self._started().ask(None, request, DescribeAclsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return [
                Acl(
                    _member(ResourceType, resource.resource_type),
                    resource.resource_name,
                    one.principal,
                    _member(AclOperation, one.operation),
                    _member(PermissionType, one.permission_type),
                    one.host,
                    _member(PatternType, resource.pattern_type),
                )
                for resource in answer.resources
                for one in resource.acls
            ]

        return await self._started().retry(attempt, self._timeout_ms)

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create ACLs, independently of each other; one that exists is no error. Raises AdminError by ACL, as text."""
        request = CreateAclsRequest(
            creations=[
                CreateAclsRequest.AclCreation(
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    resource_pattern_type=one.pattern_type,
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in acls
            ]
        )

        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(CreateAclsRequest)
            answer = await connection.send(request, CreateAclsResponse, version)
            return refusals(
                (str(acl), one.error_code, one.error_message) for acl, one in zip(acls, answer.results, strict=True)
            )

        await self._change(attempt)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Delete the ACLs that the filters match, and return them. Raises AdminError by filter ("filter 0" is the
        first) after the other filters were applied.
        """
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=one.resource_type,
                    resource_name_filter=one.resource_name,
                    pattern_type_filter=one.pattern_type,
                    principal_filter=one.principal,
                    host_filter=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in filters
            ]
        )
        deleted: dict[Acl, None] = {}

        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(DeleteAclsRequest)
            answer = await connection.send(request, DeleteAclsResponse, version)
            for result in answer.filter_results:
                deleted.update((_deleted(one), None) for one in result.matching_acls if not one.error_code)
            return refusals(
                (f"filter {index}", one.error_code, one.error_message)
                for index, one in enumerate(answer.filter_results)
            )

        await self._change(attempt)
        return list(deleted)


def _deleted(one: DeleteAclsResponse.DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        _member(ResourceType, one.resource_type),
        one.resource_name,
        one.principal,
        _member(AclOperation, one.operation),
        _member(PermissionType, one.permission_type),
        one.host,
        _member(PatternType, one.pattern_type),
    )


def _member(numbers: type[_E], number: int) -> _E:
    """The member with a number; UNKNOWN, which is 0, for a number of a later Kafka."""
    return next((one for one in numbers if one == number), numbers(0))
