"""Which broker this one is to its clients: the versions and features of a release of Apache Kafka, cut to what exists.

`ottla.profile` names it. `default` is Kafka 4.1 and, beyond it, every older version that has a handler, so that
clients of all ages are served, and share groups as in Kafka 4.2. `kafka-4.1`, `kafka-4.0`, `kafka-3.9` and
`kafka-2.8` show what that release shows, no more: for testing clients against it. What is outside is treated as that
release does: the connection is closed, but ApiVersions gets UNSUPPORTED_VERSION. An API that gains a handler appears
by itself, by the table in `releases.py`.

Only what is spoken differs. Behaviour, error codes and defaults are those of the base release.
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
"""The newest versions of APIs that `default` has from a release after its base: share groups as Kafka 4.2 has them."""
DEFAULT_NAME: Final = "default"


class AdvertisedApi(NamedTuple):
    """One line of ApiVersions."""

    key: ApiKey
    min_version: int
    max_version: int


class Profile(NamedTuple):
    """What a broker speaks.

    Attributes:
        name: as in `ottla.profile`.
        release: of Kafka, whose newest versions and features these are.
        serves_older: versions below the release's are served too, where they exist.
    """

    name: str
    release: str
    serves_older: bool

    def served(self, api: Api) -> Range | None:
        """First and last version of `api` that requests may have, None for none."""
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
        """First and last version of `api` that ApiVersions lists, None for none."""
        served = self.served(api)
        if served is not None and api.key == ApiKey.PRODUCE and self._refuses_old_produce:
            return 0, served[1]
        return served

    def supported_features(self, ours: Mapping[str, Range]) -> dict[str, Range]:
        """Of the levels that this software supports, by feature, those that the release does."""
        cut = {}
        for name, (first, last) in ours.items():
            of_release = FEATURES[self.release].get(name)
            if of_release is not None:
                most = min(last, of_release[1])
                cut[name] = (min(first, most), most)
        return cut

    def finalized_features(self, epoch: int, levels: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """Epoch and levels as the release may have them; epoch -1 where it knows no features."""
        known = FEATURES[self.release]
        if not known:
            return -1, {}
        return epoch, {name: min(level, known[name][1]) for name, level in levels.items() if name in known}

    @property
    def _refuses_old_produce(self) -> bool:
        return not self.serves_older and self.release.startswith("4.")


def profile_named(name: str) -> Profile:
    """The profile of a value of `ottla.profile`. Raises KeyError."""
    return _PROFILES[name]


_PROFILES: Final[Mapping[str, Profile]] = {
    name: Profile(name, BASE_RELEASE if name == DEFAULT_NAME else name.removeprefix("kafka-"), name == DEFAULT_NAME)
    for name in PROFILE_NAMES
}
DEFAULT: Final = _PROFILES[DEFAULT_NAME]
