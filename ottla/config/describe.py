"""What DescribeConfigs says of a key: its value, who set it, and the other keys that had a say in it.

Two things are said more fully than Kafka says them: a key that falls back on coarser ones (`log.retention.ms`) has
the value that counts, where Kafka has none, and its synonyms name those keys, where Kafka leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ottla.config.options import ConfigEntry, ConfigSource, ConfigSynonym, Option

Layer: TypeAlias = tuple[ConfigSource, Mapping[str, object]]
"""What one place sets, parsed, by key. Layers come in the order in which they win."""


def merged(layers: Sequence[Layer]) -> dict[str, object]:
    """What is set, by key, by whichever layer wins."""
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
    """What is set, the key itself first, then the defaults, each in the unit of its own key."""
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


def topic_entry(
    option: Option, value: object, overrides: Mapping[str, object], broker_layers: Sequence[Layer]
) -> ConfigEntry:
    """The entry of a topic's key. `value` is what counts, `overrides` what the topic itself sets, parsed, by key."""
    inherited = broker_synonyms(option.inherits, broker_layers) if option.inherits else ()
    own = (
        (ConfigSynonym(option.key, _shown(option, overrides[option.key]), ConfigSource.TOPIC_CONFIG),)
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
    """The entry of a key of a group or of client metrics: what is set there, or the default."""
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
    """What the key means, for people, and why it has no effect where it has none."""
    return f"{option.doc} No effect: {option.inert}." if option.inert else option.doc


def select(options: Mapping[str, Option], names: Iterable[str] | None) -> list[Option]:
    """The options of these names (all without), in the order of their names; unknown names are left out, as Kafka
    does.
    """
    keys = options if names is None else (name for name in dict.fromkeys(names) if name in options)
    return [options[key] for key in sorted(keys)]


def _shown(option: Option, value: object) -> str | None:
    return None if option.is_sensitive else option.show(value)
