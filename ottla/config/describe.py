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


def inheriting_entry(
    option: Option,
    value: object,
    overrides: Mapping[str, object],
    broker_layers: Sequence[Layer],
    own_source: ConfigSource,
) -> ConfigEntry:
    """The entry of a topic's or a group's key. `value` is the effective one, `overrides` the topic's or group's own
    values, parsed, by key; their source is `own_source`.
    """
    inherited = broker_synonyms(option.inherits, broker_layers) if option.inherits else ()
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


def own_entry(option: Option, default: object, own: Mapping[str, object], source: ConfigSource) -> ConfigEntry:
    """The entry of a key that inherits from none of the broker: the value that is set, or the default."""
    is_default = option.key not in own
    shown = _shown(option, default)
    defaults = () if shown is None else (ConfigSynonym(option.key, shown, ConfigSource.DEFAULT_CONFIG),)
    synonyms = (
        defaults if is_default else (ConfigSynonym(option.key, _shown(option, own[option.key]), source), *defaults)
    )
    return ConfigEntry(
        name=option.key,
        value=shown if is_default else _shown(option, own[option.key]),
        source=ConfigSource.DEFAULT_CONFIG if is_default else source,
        read_only=False,
        is_sensitive=False,
        is_default=is_default,
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
