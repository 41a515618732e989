"""ApiVersions (key 18), versions 0-5: the APIs and versions that the broker supports.

The first request of most clients. The response has the response header of version 0 at every version, so that a client
can read it before it knows the broker's versions (KIP-511). A request of an unknown version is answered in version 0
with UNSUPPORTED_VERSION and the full list.

Versions: 1 adds the throttle time · 3 is flexible, adds the client's name and the features (KIP-584) · 4 lets a feature
begin at version 0 (KAFKA-17011: in a version 3 response such features are left out) · 5 names the cluster and the node
that the client expects; others answer REBOOTSTRAP_REQUIRED (KIP-1242).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since, tagged
from ottla.protocol.types import Bool, Int16, Int32, Int64, NullableString, String


class ApiVersionsRequest(Request, key=18, versions="0-5", flexible="3+"):
    """The client's name; both fields match ``[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`` or the request is
    invalid. The cluster id and the node id are both given, or neither (null and -1).
    """

    client_software_name: String = since("3+", default="", ignorable=True)
    client_software_version: String = since("3+", default="", ignorable=True)
    cluster_id: NullableString = since("5+", default=None, ignorable=True)
    node_id: Int32 = since("5+", default=-1, ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+"):
    """The APIs and the features; `finalized_features_epoch` is -1 if it is unknown."""

    class ApiVersion(Struct):
        """One API and the versions that the broker accepts, both ends included."""

        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeatureKey(Struct):
        """A feature and the levels that the broker supports."""

        name: String
        min_version: Int16
        max_version: Int16

    class FinalizedFeatureKey(Struct):
        """A feature and the levels that are in effect in the cluster."""

        name: String
        max_version_level: Int16
        min_version_level: Int16

    error_code: Int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = tagged(0, "3+", factory=list, ignorable=True)
    finalized_features_epoch: Int64 = tagged(1, "3+", default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, "3+", factory=list, ignorable=True)
    zk_migration_ready: Bool = tagged(3, "3+", default=False, ignorable=True)


def refused(request: ApiVersionsRequest, version: int, code: ErrorCode, message: str) -> None:
    """Return None, so that the connection is closed: a client cannot continue without the list. Only a bug calls
    this.
    """
