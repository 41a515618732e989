"""ApiVersions, versions 0-5: the APIs and versions of this broker, and its features.

The list is derived from the handlers and the profile (`gate.advertised_apis`, `profiles.py`). A request of a later
version never reaches this handler: the gate answers it in version 0. Client names are checked from version 3 on, as
KIP-511 requires.

From version 5 on a client may name the cluster and the node that it expects here (KIP-1242): the answer of another one
is REBOOTSTRAP_REQUIRED and no list, so that a client whose address now belongs to another broker looks for its cluster
again. One id without the other is INVALID_REQUEST.

Features: those of `metadata/features.py`. In a version 3 response features that begin at level 0 are
left out, because clients of that version refuse a minimum of 0 (KAFKA-17011).
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from ottla.broker.metadata.features import SUPPORTED_FEATURES
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

LONGEST_SHOWN = 60
"""The number of characters of a client's name, and of its version, in log lines."""

NEEDS = ()
"""None: it comes before authentication."""
CHUNKS = ()

NO_NODE = -1


def handle(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """List all APIs and features."""
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        refusal = _check_place(request, context)
        if refusal is not None:
            return ApiVersionsResponse(error_code=refusal, api_keys=[])
        # Interned like the host: thousands of connections of the same program share one string.
        context.connection.software = sys.intern(" ".join(name[:LONGEST_SHOWN] for name in names))
    services = context.services
    supported = services.profile.supported_features(SUPPORTED_FEATURES)
    epoch, levels = services.profile.finalized_features(*services.catalog.finalized_features())
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in services.advertised_apis
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in supported.items()
            if first > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
        ],
    )


def _check_place(request: ApiVersionsRequest, context: Context) -> ErrorCode | None:
    """The reason why a client that expects another cluster or node is refused."""
    if request.cluster_id is None and request.node_id == NO_NODE:
        return None
    if request.cluster_id is None or request.node_id == NO_NODE:
        return ErrorCode.INVALID_REQUEST
    catalog = context.services.catalog
    is_here = (request.cluster_id, request.node_id) == (catalog.cluster_id, catalog.node_id)
    return None if is_here else ErrorCode.REBOOTSTRAP_REQUIRED
