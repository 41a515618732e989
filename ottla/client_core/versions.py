"""The version of each API that a client and a broker both speak: the newest one, unless the caller needs an older.

Messages below `OLDEST_USED` carry records of formats before v2, or answer with lists of offsets: no client here uses
them, though the declarations go further back for the broker's sake.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.protocol.api import REGISTRY, ApiKey

OLDEST_USED: Mapping[int, int] = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1}
ANY_VERSION = 2**15 - 1


class NoCommonVersion(Exception):
    """No version of an API is common to both sides. `theirs` is the broker's range, None where it has no such API."""

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
    """Return the newest version of an API that both sides speak and that is not above `at_most`.

    `theirs` is the broker's range of each API, as ApiVersions has it. Raises NoCommonVersion.
    """
    api = REGISTRY[api_key]
    oldest = oldest_used.get(api_key, api.min_version)
    lowest, highest = theirs.get(api_key, (1, 0))
    version = min(api.max_version, highest, at_most)
    if version < max(oldest, lowest):
        known = (lowest, highest) if highest >= lowest else None
        raise NoCommonVersion(api.name, oldest, min(api.max_version, at_most), known)
    return version
