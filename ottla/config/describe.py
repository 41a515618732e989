"""The answers of DescribeConfigs: for each key its value, its source, and the other keys that its value may come from.

Two things are more complete than in Kafka. A key that falls back on coarser ones (`log.retention.ms`) is returned with
its effective value, where Kafka returns none; and its synonyms include those keys, where Kafka leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ottla.config.options import ConfigEntry, ConfigSource, ConfigSynonym, Option

Layer: TypeAlias = tuple[ConfigSource, Mapping[str, object]]
"""The values that one source sets, parsed, by key. Layers are in order of precedence, the strongest first."""


def merged(layers: Sequence[Layer]) -> dict[str, object]:
    """The values that are set, by key: of each key the value in the strongest layer."""
    values: dict[str, object] = {}
    for _, layer in reversed(layers):
        values.update(layer)
    return values


def broker_entry(option: Option, layers: Sequence[Layer]) -> ConfigEntry:
    """The entry of a broker's key."""
    synonyms = broker_synonyms(option, layers)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(
        name=option.key,
        value=_shown(option, option.effective(merged(layers))),
        source=source,
        read_only=not option.is_dynamic,
        is_sensitive=option.is_sensitive,
        is_default=source is ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        type=option.kind,
        documentation=documentation(option),
    )


def inherited_synonyms(option: Option, layers: Sequence[Layer]) -> tuple[ConfigSynonym, ...]:
    """The values of the broker's key from which a key takes its default; none if it has no such key."""
    return broker_synonyms(option.inherits, layers) if option.inherits else ()


def broker_synonyms(option: Option, layers: Sequence[Layer]) -> tuple[ConfigSynonym, ...]:
    """The values that are set, of the key itself first, then the defaults, each in the unit of its own key."""
    chain = option.chain()
    given = [
        ConfigSynonym(link.key, _shown(link, values[link.key]), source)
        for link in chain
        for source, values in layers
        if link.key in values
    ]
    defaults = [
        ConfigSynonym(link.key, shown, ConfigSource.DEFAULT_CONFIG)
        for link in chain
        if (shown := _shown(link, link.default)) is not None
    ]
    return (*given, *defaults)


def own_entry(
    option: Option,
    value: object,
    overrides: Mapping[str, object],
    own_source: ConfigSource,
    inherited: tuple[ConfigSynonym, ...],
) -> ConfigEntry:
    """The entry of a key of a topic, a group or client metrics. `value` is the effective one, `overrides` the values
    that are set there, parsed, by key, and `inherited` the other values that it may come from.
    """
    own = (
        (ConfigSynonym(option.key, _shown(option, overrides[option.key]), own_source),)
        if option.key in overrides
        else ()
    )
    synonyms = (*own, *inherited)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(
        name=option.key,
        value=_shown(option, value),
        source=source,
        read_only=False,
        is_sensitive=option.is_sensitive,
        is_default=source is ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        type=option.kind,
        documentation=documentation(option),
    )


def documentation(option: Option) -> str:
    """The meaning of the key in words, and the reason if it has no effect."""
    return f"{option.doc} No effect: {option.inert}." if option.inert else option.doc


def select(options: Mapping[str, Option], names: Iterable[str] | None) -> list[Option]:
    """The options with these names (None: all), sorted by name; unknown names are left out, as in Kafka."""
    keys = options if names is None else (name for name in dict.fromkeys(names) if name in options)
    return [options[key] for key in sorted(keys)]


def _shown(option: Option, value: object) -> str | None:
    return None if option.is_sensitive else option.show(value)
