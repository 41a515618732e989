"""The version of each API that client and broker both support: the newest one, unless the caller needs an older one.

Versions below `OLDEST_USED` carry records of formats before v2, or answer with lists of offsets: no client here uses
them; they are declared only for the broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.protocol.api import REGISTRY, ApiKey

OLDEST_USED: Mapping[int, int] = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1}
ANY_VERSION = 2**15 - 1


class NoCommonVersion(Exception):
    """Both sides have no version of an API in common. `theirs` is the broker's range, None if it has no such API."""

    def __init__(self, api_name: str, oldest: int, newest: int, theirs: tuple[int, int] | None) -> None:
        self.api_name = api_name
        self.oldest = oldest
        self.newest = newest
        self.theirs = theirs
        super().__init__(
            f"{api_name}: the broker speaks versions {self.theirs_in_words}, this client {oldest}-{newest}"
        )

    @property
    def theirs_in_words(self) -> str:
        """The broker's range, as `3-9`, or `none`."""
        return "none" if self.theirs is None else f"{self.theirs[0]}-{self.theirs[1]}"


def newest_common(
    theirs: Mapping[int, tuple[int, int]],
    api_key: int,
    at_most: int = ANY_VERSION,
    oldest_used: Mapping[int, int] = OLDEST_USED,
) -> int:
    """Return the newest version of an API that both sides support, up to `at_most`.

    `theirs` is the broker's range of each API, from ApiVersions. Raises NoCommonVersion.
    """
    api = REGISTRY[api_key]
    oldest = oldest_used.get(api_key, api.min_version)
    lowest, highest = theirs.get(api_key, (1, 0))
    version = min(api.max_version, highest, at_most)
    if version < max(oldest, lowest):
        known = (lowest, highest) if highest >= lowest else None
        raise NoCommonVersion(api.name, oldest, min(api.max_version, at_most), known)
    return version
