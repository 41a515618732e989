"""AlterClientQuotas (key 49), versions 0-1: set and remove quotas of users, clients and addresses (KIP-546).

Versions: 1 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bool, Float64, Int16, Int32, NullableString, String


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    """The entities with their changes; `validate_only` only checks."""

    class EntityData(Struct):
        """A part of an entity; a null name is the default of its type."""

        entity_type: String
        entity_name: NullableString

    class OpData(Struct):
        """Set a quota, or remove it."""

        key: String
        value: Float64
        remove: Bool

    class EntryData(Struct):
        """An entity and its changes."""

        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]

    entries: list[EntryData]
    validate_only: Bool


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    """The result for each entity."""

    class EntityData(Struct):
        """A part of an entity; a null name is the default of its type."""

        entity_type: String
        entity_name: NullableString

    class EntryData(Struct):
        """One entity."""

        error_code: Int16 = 0
        error_message: NullableString = None
        entity: list[AlterClientQuotasResponse.EntityData]

    throttle_time_ms: Int32 = 0
    entries: list[EntryData]


def refused(
    request: AlterClientQuotasRequest, version: int, code: ErrorCode, message: str
) -> AlterClientQuotasResponse:
    """Refuse every entry of the request."""
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=message,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
