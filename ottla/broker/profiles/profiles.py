"""Profiles: the API versions and features of a Kafka release that this broker shows, as far as Ottla has them.

`ottla.profile` names one. `default` is Kafka 4.4 plus every older version that has a handler, so that clients of all
ages are served. `kafka-4.4`, `kafka-4.1`, `kafka-4.0`, `kafka-3.9` and `kafka-2.8` show exactly what that release
shows, to test clients against it. Other versions are treated as by that release: the connection is closed, except that
ApiVersions gets UNSUPPORTED_VERSION. An API that gets a handler appears automatically, by the table in `releases.py`.

Only the protocol versions differ. Behaviour, error codes and defaults are the same in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.profiles.releases import FEATURES, REFUSED_PRODUCE_BELOW, RELEASES, Range
from ottla.config.ours import PROFILE_NAMES
from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.protocol.api import Api

BASE_RELEASE: Final = "4.4"
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
                most = min(last, of_release[1])
                cut[name] = (min(first, most), most)
        return cut

    def finalized_features(self, epoch: int, levels: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """Epoch and levels, limited to those of the release; epoch -1 if it has no features."""
        known = FEATURES[self.release]
        if not known:
            return -1, {}
        return epoch, {name: min(level, known[name][1]) for name, level in levels.items() if name in known}

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
