"""A hint after a key that was refused: the key to set instead, with the value in its unit.

    instead_on_topic("log.retention.hours", "3")     ; set retention.ms=10800000 instead
    instead_on_broker("log.retention.hours", "3")    ; set log.retention.ms=10800000 instead
    instead_on_topic("segment.byte", "1")            ; did you mean segment.bytes?

Imported only after such a mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.config.broker import ALL_BROKER_KEYS
from ottla.config.errors import ConfigError
from ottla.config.options import Given, Option, Origin, OriginKind
from ottla.config.resources import GroupConfig
from ottla.config.topic import ALL_TOPIC_KEYS

_CUTOFF = 0.85
_CLIENT = Origin(OriginKind.TOPIC, "")


class _Instead(NamedTuple):
    """`key` replaces `written`, the key that was given, with its value multiplied by `factor`."""

    written: Option
    key: str
    factor: int


def instead_on_topic(key: str, value: str | None) -> str:
    """The hint after the refusal of a topic's key; an empty text where no key is similar."""
    return _words(key, value, _behind(ALL_TOPIC_KEYS.values()), ALL_TOPIC_KEYS)


def instead_on_group(key: str, value: str | None) -> str:
    """As `instead_on_topic`, for a consumer group's key."""
    return _words(key, value, _behind(GroupConfig.by_key.values()), GroupConfig.by_key)


def instead_on_broker(key: str, value: str | None) -> str:
    """As `instead_on_topic`, for a broker's key that is changed while the broker runs."""
    dynamic = {name: option for name, option in ALL_BROKER_KEYS.items() if option.is_dynamic}
    finer = [_Instead(link, one.key, factor) for one in dynamic.values() for link, factor in one.coarser]
    topics = [
        _Instead(one, one.inherits.key, 1)
        for one in ALL_TOPIC_KEYS.values()
        if one.inherits is not None and one.inherits.is_dynamic
    ]
    return _words(key, value, [*finer, *topics], {} if key in ALL_BROKER_KEYS else dynamic)


def _behind(options: Iterable[Option]) -> Iterator[_Instead]:
    """The broker's keys from which a topic's or a group's keys inherit, and the coarser keys of those."""
    for option in options:
        if option.inherits is not None:
            yield _Instead(option.inherits, option.key, 1)
            for link, factor in option.inherits.coarser:
                yield _Instead(link, option.key, factor)


def _words(key: str, value: str | None, others: Iterable[_Instead], keys: Mapping[str, Option]) -> str:
    for one in others:
        if one.written.key in (key, f"log.{key}"):
            return f"; set {one.key}{_converted(one, value)} instead"
    near = difflib.get_close_matches(key, keys, n=1, cutoff=_CUTOFF)
    return f"; did you mean {near[0]}?" if near else ""


def _converted(one: _Instead, value: str | None) -> str:
    if value is None:
        return ""
    try:
        read = one.written.read(Given(value, _CLIENT))
    except ConfigError:
        return ""
    if isinstance(read, int) and not isinstance(read, bool):
        return f"={read * one.factor if read >= 0 else read}"
    return f"={one.written.show(read)}"
