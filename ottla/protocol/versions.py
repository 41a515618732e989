"""Version ranges as Kafka's schemas write them: ``"3-13"``, ``"9+"``, ``"0"``, ``"none"``."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

UNBOUNDED: Final = 32_767
"""The last version that the wire can name (an int16): the end of an open range."""


class VersionRange(NamedTuple):
    """Versions ``first`` to ``last``, both included; empty if ``last`` is the smaller."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def versions(self) -> range:
        """The versions in order. Only for ranges that end."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == UNBOUNDED:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSION: Final = VersionRange(0, -1)
EVERY_VERSION: Final = VersionRange(0, UNBOUNDED)


@lru_cache(maxsize=256)
def parse_versions(text: str) -> VersionRange:
    """Read Kafka's notation; raises ValueError for anything else."""
    if text == "none":
        return NO_VERSION
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), UNBOUNDED)
    first, dash, last = text.partition("-")
    return VersionRange(int(first), int(last) if dash else int(first))
