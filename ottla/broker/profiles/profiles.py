"""Profiles: the API versions and features of a Kafka release that this broker shows, as far as Ottla has them.

`ottla.profile` names one. `default` is Kafka 4.1 plus every older version that has a handler, so that clients of all
ages are served, and the share groups of Kafka 4.2. `kafka-4.1`, `kafka-4.0`, `kafka-3.9` and `kafka-2.8` show exactly
what that release shows, to test clients against it. Other versions are treated as by that release: the connection is
closed, except that ApiVersions gets UNSUPPORTED_VERSION. An API that gets a handler appears automatically, by the
table in `releases.py`.

Only the protocol versions differ. Behaviour, error codes and defaults are those of the base release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.profiles.releases import FEATURES, REFUSED_PRODUCE_BELOW, RELEASES
from ottla.config.ours import PROFILE_NAMES
from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.profiles.releases import Range
    from ottla.protocol.api import Api

BASE_RELEASE: Final = "4.1"
NEWER: Final[Mapping[int, int]] = {
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 1,
}
"""The newest versions that `default` has from a release after its base: those of share groups in Kafka 4.2."""
NEWER_FEATURES: Final[Mapping[str, int]] = {"share.version": 2}
"""The same of features: that with dead letters of share groups in Kafka 4.4."""
DEFAULT_NAME: Final = "default"


class AdvertisedApi(NamedTuple):
    """One line of ApiVersions."""

    key: ApiKey
    min_version: int
    max_version: int


class Profile(NamedTuple):
    """The versions and features that a broker shows.

    Attributes:
        name: as in `ottla.profile`.
        release: the Kafka release with these newest versions and features.
        serves_older: whether versions below the release's are served, too, if they exist.
    """

    name: str
    release: str
    serves_older: bool

    def served(self, api: Api) -> Range | None:
        """First and last version of `api` that requests may have; None: it is not served."""
        of_release = RELEASES[self.release].get(int(api.key))
        if of_release is None:
            return None
        first, last = of_release
        if self.serves_older:
            last = NEWER.get(int(api.key), last)
        first = api.min_version if self.serves_older else max(first, api.min_version)
        if api.key == ApiKey.PRODUCE and self._refuses_old_produce:
            first = max(first, REFUSED_PRODUCE_BELOW)
        last = min(last, api.max_version)
        return (first, last) if first <= last else None

    def advertised(self, api: Api) -> Range | None:
        """First and last version of `api` that ApiVersions lists; None: it is not listed."""
        served = self.served(api)
        if served is not None and api.key == ApiKey.PRODUCE and self._refuses_old_produce:
            return 0, served[1]
        return served

    def supported_features(self, ours: Mapping[str, Range]) -> dict[str, Range]:
        """The levels, by feature, that both this software (`ours`) and the release support."""
        cut = {}
        for name, (first, last) in ours.items():
            of_release = FEATURES[self.release].get(name)
            if of_release is not None:
                most = min(last, self._newest_level(name))
                cut[name] = (min(first, most), most)
        return cut

    def finalized_features(self, epoch: int, levels: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """Epoch and levels, limited to those of the release; epoch -1 if it has no features."""
        known = FEATURES[self.release]
        if not known:
            return -1, {}
        return epoch, {name: min(level, self._newest_level(name)) for name, level in levels.items() if name in known}

    def _newest_level(self, feature: str) -> int:
        newest = FEATURES[self.release][feature][1]
        return NEWER_FEATURES.get(feature, newest) if self.serves_older else newest

    @property
    def _refuses_old_produce(self) -> bool:
        return not self.serves_older and self.release.startswith("4.")


def profile_named(name: str) -> Profile:
    """The profile with a name in `ottla.profile`. Raises KeyError."""
    return _PROFILES[name]


_PROFILES: Final[Mapping[str, Profile]] = {
    name: Profile(name, BASE_RELEASE if name == DEFAULT_NAME else name.removeprefix("kafka-"), name == DEFAULT_NAME)
    for name in PROFILE_NAMES
}
DEFAULT: Final = _PROFILES[DEFAULT_NAME]
