"""Names of options that do not exist, or have no effect here.

An unknown option is an error that proposes the name that was probably meant: `startingOffset` startingOffsets, and
`fetch.max.bytes` kafka.fetch.max.bytes. Where no name is like it, the error lists all.

Keys of Kafka's clients without effect are accepted, so that a query for Spark's own source runs unchanged. One warning
names them all. A value that Kafka's client would refuse is an error, as there.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ottla.spark.option_values import boolean, integer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

logger = logging.getLogger(__name__)

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


# Options without effect ---------------------------------------------------------------------------------------------

Kind = Literal["number", "boolean", "text"]
"""What the value of a key without effect has to be."""


def check_without_effect(option: str, value: str, kind: Kind) -> None:
    """Raise OptionError for a value that is none of its kind."""
    if kind == "number":
        integer(option, value, -1)
    elif kind == "boolean":
        boolean(option, value)


def without_effect(given: Iterable[str], kinds: Mapping[str, Kind]) -> list[str]:
    """Return which of the `kafka.*` options have no effect; `kinds` has the keys without the prefix."""
    return [name for name in given if name.removeprefix(KAFKA_PREFIX) in kinds]


def warning_of(names: Collection[str]) -> str:
    """Return the warning for options without effect; an empty text for none."""
    if not names:
        return ""
    options, have, them = ("option", "has", "it") if len(names) == 1 else ("options", "have", "them")
    why = "Spark plans what each task reads or writes, and the client is Ottla's"
    return f"{options} {', '.join(sorted(names))} {have} no effect: {why}; remove {them} to silence this warning"


@lru_cache(maxsize=128)
def warn_once(warning: str) -> None:
    """Log a warning, unless this process has logged it: Spark makes a writer for every micro-batch."""
    if warning:
        logger.warning("%s", warning)
