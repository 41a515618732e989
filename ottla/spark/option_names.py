"""Names of options that do not exist: an error that proposes the name that was probably meant.

startingOffset     did you mean startingOffsets?
fetch.max.bytes    did you mean kafka.fetch.max.bytes?
nothing.like.it    known are assign, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

KAFKA_PREFIX = "kafka."
_CUTOFF = 0.8
_SECURITY_CUTOFF = 0.9
"""Many names of TLS and SASL are like each other."""
_SECURITY_PREFIXES = ("kafka.ssl.", "kafka.sasl.")


def nearest(name: str, known: Collection[str]) -> str:
    """Return the known name that is most like this one, in any case; an empty text if none is like it."""
    from difflib import get_close_matches  # imported for a mistake only

    by_lower = {one.lower(): one for one in known}
    wanted = name.lower()
    if KAFKA_PREFIX + wanted in by_lower:
        return by_lower[KAFKA_PREFIX + wanted]
    cutoff = _SECURITY_CUTOFF if wanted.startswith(_SECURITY_PREFIXES) else _CUTOFF
    near = get_close_matches(wanted, by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else ""


def unknown(name: str, known: Collection[str], listed: str) -> str:
    """Return the message for an unknown option. `listed` are the names to show if no known name is like it."""
    near = nearest(name, known)
    return f"unknown option {name}; " + (f"did you mean {near}?" if near else f"known are {listed}")
