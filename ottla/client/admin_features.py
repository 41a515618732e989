"""The part of an Admin that handles features: the levels of a cluster, and changes of them (KIP-584).

`transaction.version` and `metadata.version` are such features. Raise a level when every client, and every tool that
reads the directory, supports what is new in it; a new version of the program does not raise it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.admin_acls import AclAdmin
from ottla.client.admin_results import ApiVersionRange, FeatureLevels
from ottla.client.errors import KafkaError, UnsupportedByBroker
from ottla.client.secured import SOFTWARE_NAME
from ottla.protocol.api import REGISTRY
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode
from ottla.version import __version__

_FIRST_VERSION_WITH_UPGRADE_TYPES = 1
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class FeatureAdmin(AclAdmin):
    """See the module; `Admin` is the class for programs."""

    # Features ---------------------------------------------------------------------------------------------------

    async def describe_features(self) -> dict[str, FeatureLevels]:
        """Return the features of the cluster by name: their current levels, and those that it supports."""
        answer = await self._api_versions(None)
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        bounds = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        return {
            name: FeatureLevels(levels.get(name), *bounds.get(name, (None, None)))
            for name in sorted(levels.keys() | bounds.keys())
        }

    async def describe_api_versions(self, node_id: int | None = None) -> list[ApiVersionRange]:
        """Return the APIs of a broker, of any by default, with the versions that it accepts; sorted by key.

        For a broker that is not in the cluster, BROKER_NOT_AVAILABLE is raised immediately.
        """
        names = {int(key): api.name for key, api in REGISTRY.items()}
        answer = await self._api_versions(node_id)
        found = [
            ApiVersionRange(one.api_key, names.get(one.api_key), one.min_version, one.max_version)
            for one in answer.api_keys
        ]
        return sorted(found, key=lambda one: one.key)

    async def _api_versions(self, node_id: int | None) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__.replace("+", "-")
        )

        async def attempt() -> ApiVersionsResponse:
            await self._started().require_broker(node_id)
            answer = await self._started().ask(node_id, request, ApiVersionsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code))
            return answer

        return await self._started().retry(attempt, self._timeout_ms)

    async def upgrade_features(self, levels: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Raise the levels of features, all of them or none; `validate_only` only checks whether that is possible.

        Raises KafkaError INVALID_UPDATE_VERSION with the broker's reason.
        """
        await self._update_features(levels, _UPGRADE, validate_only)

    async def downgrade_features(
        self, levels: Mapping[str, int], *, unsafe: bool = False, validate_only: bool = False
    ) -> None:
        """As `upgrade_features`, to lower levels. `unsafe`: even if data that only the higher level has is lost."""
        await self._update_features(levels, _UNSAFE_DOWNGRADE if unsafe else _SAFE_DOWNGRADE, validate_only)

    async def _update_features(self, levels: Mapping[str, int], upgrade_type: int, validate_only: bool) -> None:
        async def attempt() -> dict[str, KafkaError]:
            connection, version = await self._controller(UpdateFeaturesRequest)
            if version < _FIRST_VERSION_WITH_UPGRADE_TYPES and (validate_only or upgrade_type == _UNSAFE_DOWNGRADE):
                raise UnsupportedByBroker(f"the broker at {connection.address} is too old to check, or to be unsafe")
            request = UpdateFeaturesRequest(
                timeout_ms=self._options.request_timeout_ms,
                feature_updates=[_update(name, level, upgrade_type, version) for name, level in levels.items()],
                validate_only=validate_only,
            )
            answer = await connection.send(request, UpdateFeaturesResponse, version)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            return {}

        await self._change(attempt)


def _update(name: str, level: int, upgrade_type: int, version: int) -> UpdateFeaturesRequest.FeatureUpdateKey:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level)
    if version < _FIRST_VERSION_WITH_UPGRADE_TYPES:
        update.allow_downgrade = upgrade_type != _UPGRADE
    else:
        update.upgrade_type = upgrade_type
    return update
