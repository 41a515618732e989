"""Keys of one listener, `listener.name.NAME.KEY`: the part of `BrokerConfig` that reads, checks and shows them.

A listener's own key wins over the same key without a listener; a value that a client has set while the broker runs wins
over one that it was started with. A key of SASL may also be set for one mechanism, `listener.name.NAME.MECHANISM.KEY`.
Names of listeners are in lower case in these keys (Kafka's `ListenerName.configPrefix`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.config.describe import broker_synonyms, documentation, merged
from ottla.config.errors import ConfigError
from ottla.config.network import ListenerLimits
from ottla.config.options import ConfigEntry, ConfigSource, ConfigSynonym, Given, Option, Origin, OriginKind
from ottla.config.sasl import Sasl
from ottla.config.tls import DYNAMIC_TLS_KEYS, Tls

if TYPE_CHECKING:
    from ottla.config.listeners import Listener

LISTENER_KEY = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<key>.+)")
_DYNAMIC = Origin(OriginKind.TOPIC, "")


def listener_key(name: str, key: str) -> str:
    """The full name of a key of one listener, as in Kafka."""
    return f"listener.name.{name.lower()}.{key}"


class ListenerConfig(Sasl, Tls, ListenerLimits):
    """The keys that may be set for one listener, with its effective values. Made by `PerListener.on_listener`."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.assign(values)


class PerListener:
    """A part of `BrokerConfig`, which documents the attributes."""

    listener_overrides: dict[str, dict[str, str]]
    dynamic_overrides: dict[str, dict[str, str]]
    origins: dict[str, Origin]
    if TYPE_CHECKING:
        listeners: tuple[Listener, ...]
        max_connections: int
        max_connection_creation_rate: int
        layers: property
        origin_of: Callable[[str], Origin]
        _wrong: Callable[[str, str], ConfigError]

    def on_listener(
        self, name: str, mechanism: str = "", *, dynamic: Mapping[str, str] | None = None
    ) -> ListenerConfig:
        """The effective security keys of this listener, for this SASL mechanism if one is named: a key of
        `listener.name.NAME.MECHANISM.` wins over one of `listener.name.NAME.`. Raises ConfigError for a wrong value.

        `dynamic` replaces the values that were set for the listener while the broker runs.
        """
        values = merged(self.layers)
        overrides = self._given_on_listener(name, dynamic)
        for prefix in ("", f"{mechanism.lower()}.") if mechanism else ("",):
            for own, given in overrides.items():
                option = ListenerConfig.by_key.get(own.removeprefix(prefix)) if own.startswith(prefix) else None
                if option is not None:
                    try:
                        values[option.key] = option.read(given)
                    except ConfigError as error:
                        full_key = listener_key(name, own)
                        raise ConfigError(full_key, error.value, error.reason, origin=error.origin) from None
        return ListenerConfig(values)

    def listener_max_connections(self, name: str) -> int:
        """The most connections at a time by a listener."""
        own = self.listener_overrides.get(name)
        return int(own["max.connections"]) if own and "max.connections" in own else self.max_connections

    def listener_connection_rate(self, name: str) -> int:
        """The most new connections per second by a listener."""
        own = self.listener_overrides.get(name)
        key = "max.connection.creation.rate"
        return int(own[key]) if own and key in own else self.max_connection_creation_rate

    def wrong_on_listener(
        self, name: str, key: str, reason: str, dynamic: Mapping[str, str] | None = None
    ) -> ConfigError:
        """An error about the effective value of a key on this listener, with the name and the place by which it was
        set. `dynamic` as for `on_listener`.
        """
        given = self._given_on_listener(name, dynamic).get(key)
        if given is None:
            return self._wrong(key, reason)
        option = ListenerConfig.by_key[key]
        shown = "[hidden]" if option.is_sensitive else given.text
        return ConfigError(listener_key(name, key), shown, reason, origin=str(given.origin))

    def _given_on_listener(self, name: str, dynamic: Mapping[str, str] | None) -> dict[str, Given]:
        given = {
            key: Given(text, self.origin_of(listener_key(name, key)))
            for key, text in self.listener_overrides.get(name.upper(), {}).items()
        }
        texts = self.dynamic_overrides.get(name.upper(), {}) if dynamic is None else dynamic
        return given | {key: Given(text, _DYNAMIC) for key, text in texts.items()}

    def is_set_on_listener(self, key: str) -> bool:
        """Whether a client may set this key of one of this broker's listeners while the broker runs."""
        match = LISTENER_KEY.fullmatch(key)
        return (
            match is not None
            and match["key"] in DYNAMIC_TLS_KEYS
            and any(one.protocol.is_encrypted and one.name.lower() == match["listener"] for one in self.listeners)
        )

    def overrides_in(self, texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Those of these keys that are set for a listener, by its name and the key's short name."""
        found: dict[str, dict[str, str]] = {}
        for key, text in texts.items():
            if self.is_set_on_listener(key) and (match := LISTENER_KEY.fullmatch(key)):
                found.setdefault(match["listener"].upper(), {})[match["key"]] = text
        return found

    def has_no_effect_on_its_listener(self, key: str) -> bool:
        """Whether a key belongs to a single listener and has no effect there."""
        match = LISTENER_KEY.fullmatch(key)
        if match is None:
            return False
        name, short = match["listener"].upper(), match["key"]
        option = _option(short)
        protocol = next((one.protocol for one in self.listeners if one.name == name), None)
        if option is None or protocol is None or option.inert:
            return True
        return option.key in Tls.by_key and not protocol.is_encrypted

    def listener_entries(self, names: Iterable[str] | None) -> Iterator[ConfigEntry]:
        """The entries that DescribeConfigs returns for keys set for one listener: those with these names, or all."""
        layers = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic_overrides),
            (ConfigSource.STATIC_BROKER_CONFIG, self.listener_overrides),
        )
        found: dict[str, list[tuple[ConfigSource, Option, str]]] = {}
        for source, overrides in layers:
            for listener, texts in overrides.items():
                for key, text in texts.items():
                    option = _option(key)
                    name = listener_key(listener, key)
                    if option is not None and (names is None or name in names):
                        found.setdefault(name, []).append((source, option, text))
        for name, given in found.items():
            source, option, text = given[0]
            own = tuple(ConfigSynonym(name, None if option.is_sensitive else one, origin) for origin, _, one in given)
            yield ConfigEntry(
                name=name,
                value=None if option.is_sensitive else text,
                source=source,
                read_only=not self.is_set_on_listener(name),
                is_sensitive=option.is_sensitive,
                is_default=False,
                synonyms=(*own, *broker_synonyms(option, self.layers)),
                type=option.kind,
                documentation=documentation(option),
            )


def listener_option(key: str) -> Option | None:
    """The option that `listener.name.NAME.KEY` or `listener.name.NAME.MECHANISM.KEY` sets; None if there is none."""
    match = LISTENER_KEY.fullmatch(key)
    return None if match is None else _option(match["key"])


def _option(key: str) -> Option | None:
    """The option of `KEY` or of `MECHANISM.KEY`."""
    return ListenerConfig.by_key.get(key) or ListenerConfig.by_key.get(key.partition(".")[2])
