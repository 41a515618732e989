"""What DescribeConfigs says of a key: its value, who set it, and the other keys that had a say in it.

Two things are said more fully than Kafka says them: a key that falls back on coarser ones (`log.retention.ms`) has
the value that counts, where Kafka has none, and its synonyms name those keys, where Kafka leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.config.options import ConfigEntry, ConfigSource, ConfigSynonym, Option


def broker_entry(option: Option, values: Mapping[str, object]) -> ConfigEntry:
    """The entry of a broker's key; `values` holds what is set in a file, the environment or by `--override`, by key."""
    synonyms = broker_synonyms(option, values)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(
        name=option.key,
        value=_shown(option, option.effective(values)),
        source=source,
        read_only=not option.is_dynamic,
        is_sensitive=option.is_sensitive,
        is_default=source is ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        type=option.kind,
        documentation=documentation(option),
    )


def broker_synonyms(option: Option, values: Mapping[str, object]) -> tuple[ConfigSynonym, ...]:
    """What is set, the key itself first, then the defaults, each in the unit of its own key."""
    chain = option.chain()
    given = [
        ConfigSynonym(link.key, _shown(link, values[link.key]), ConfigSource.STATIC_BROKER_CONFIG)
        for link in chain
        if link.key in values
    ]
    defaults = [
        ConfigSynonym(link.key, _shown(link, link.default), ConfigSource.DEFAULT_CONFIG)
        for link in chain
        if link.default is not None
    ]
    return (*given, *defaults)


def topic_entry(
    option: Option, value: object, overrides: Mapping[str, object], broker_values: Mapping[str, object]
) -> ConfigEntry:
    """The entry of a topic's key. `value` is what counts, `overrides` what the topic itself sets, parsed, by key."""
    inherited = broker_synonyms(option.inherits, broker_values) if option.inherits else ()
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
