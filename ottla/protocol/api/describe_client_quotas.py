"""DescribeClientQuotas (key 48), versions 0-1: quotas that were set for users, clients and addresses (KIP-546).

Versions: 1 is flexible.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bool, Float64, Int8, Int16, Int32, NullableString, String


class DescribeClientQuotasRequest(
    Request, key=48, versions="0-1", flexible="1+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The filter of entities; `strict` excludes entities with further parts."""

    class ComponentData(Struct):
        """A part of the entity. `match_type`: 0 exactly this name, 1 the default, 2 any name."""

        entity_type: String
        match_type: Int8
        match: NullableString

    components: list[ComponentData]
    strict: Bool


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    """The entities that match; null if there is an error."""

    class EntityData(Struct):
        """A part of an entity; a null name is the default of its type."""

        entity_type: String
        entity_name: NullableString

    class ValueData(Struct):
        """A quota."""

        key: String
        value: Float64

    class EntryData(Struct):
        """An entity with its quotas."""

        entity: list[DescribeClientQuotasResponse.EntityData]
        values: list[DescribeClientQuotasResponse.ValueData]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    entries: list[EntryData] | None


def refused(
    request: DescribeClientQuotasRequest, version: int, code: ErrorCode, message: str
) -> DescribeClientQuotasResponse:
    """Refuse the request."""
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
