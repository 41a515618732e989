"""docs/configuration.md, written from the declarations: `python -m ottla.config.reference > docs/configuration.md`.

A test fails when the page and the declarations differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ottla.config.accepted import ACCEPTED_BROKER_KEYS, ACCEPTED_TOPIC_KEYS
from ottla.config.broker import BrokerConfig
from ottla.config.declare import INT_MAX, LONG_MAX
from ottla.config.options import Option
from ottla.config.resources import ClientMetricsConfig, GroupConfig
from ottla.config.topic import TopicConfig

_PREFACE = """\
# Configuration

All keys of the broker, of topics, groups and client metrics, with their defaults. The page is long because it is generated, one row per
key, by `python -m ottla.config.reference`; change the declarations in `ottla/config`, not the page.

Keys, their meaning and the syntax of `server.properties` are those of Apache Kafka 4.1; Ottla's own keys begin with
`ottla.`. There are five sources; each overrides the ones before it, key by key:

1. the defaults below;
2. the file given to `ottla serve server.properties` (`ottla/config/server.properties` is a commented example);
3. environment variables, spelled as for Kafka's own image: `KAFKA_LOG_RETENTION_MS` sets `log.retention.ms` (`_` stands
   for a dot, `__` for `_`, `___` for `-`); `OTTLA_ACKS_ALL` sets `ottla.acks.all`; other images' variables, such as
   Bitnami's `KAFKA_CFG_LOG_RETENTION_MS`, are in docs/image.md;
4. `--override key=value`, as often as you like;
5. settings that clients change while the broker runs (`ottla configs alter`, Kafka's own tools), for the keys marked
   ↻: first for all brokers, then for this one. They are stored in the metadata log and in effect at once.

A wrong value makes the start fail with one line: the key, the value, what is allowed, and where it was set. An unknown
key is a warning. A secret (type PASSWORD) is never shown.

A key may be set for one listener as `listener.name.NAME.KEY`. So far such keys are read and have no effect: the only
protocol is PLAINTEXT, and a listener of another protocol is refused rather than served without its protection.

**Default**: in brackets, Apache Kafka's default where it differs. **↻** after the type: can be changed while the broker
runs. **Topic**: the key by which a topic overrides it. Keys marked *no effect* are accepted, checked and
shown by DescribeConfigs.
"""

_FURTHER = """
## Accepted without effect

Keys of Apache Kafka that have no meaning on one node. They are accepted, so that files written for Kafka work unchanged.

| Key | Type | Default | Reason |
|---|---|---|---|
"""

_TOPICS = """
## Keys of a topic

A topic has these from the broker's key beside them, unless it sets them itself (`ottla topics create --config
key=value`). Type, bounds and meaning are the broker key's.

| Topic key | Broker key | Default | Effect |
|---|---|---|---|
"""

_REMOVED_TOPICS = """
Accepted for a topic, without effect:

| Topic key | Type | Reason |
|---|---|---|
"""


_RESOURCES = """
## Keys of a consumer group

Set with `ottla configs alter --group NAME`; the broker's `group.consumer.min.*` and `group.consumer.max.*` bound them.

| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
"""

_METRICS = """
## Keys of a client metrics subscription

Stored, and returned by DescribeConfigs (KIP-714).

| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
"""


def render_reference() -> str:
    """The whole page."""
    topic_keys = {option.inherits.key: option.key for option in TopicConfig.by_key.values() if option.inherits}
    parts = [_PREFACE]
    section = ""
    for option in BrokerConfig.by_key.values():
        if option.section != section:
            section = option.section
            parts.append(
                f"\n## {section}\n\n| Key | Type | Default | Allowed | Topic | Meaning |\n|---|---|---|---|---|---|\n"
            )
        parts.append(_broker_row(option, topic_keys.get(option.key, "")))
    parts.append(_FURTHER)
    parts += [
        _row(f"`{option.key}`", option.kind.name, _default(option), option.inert)
        for option in _sorted(ACCEPTED_BROKER_KEYS.values())
    ]
    parts.append(_TOPICS)
    for option in _sorted(TopicConfig.by_key.values()):
        broker_key = option.inherits.key if option.inherits else ""
        effect = f"*no effect*: {option.inert}" if option.inert else "yes"
        parts.append(_row(f"`{option.key}`", f"`{broker_key}`", _default(option), effect))
    parts.append(_REMOVED_TOPICS)
    parts += [
        _row(f"`{option.key}`", option.kind.name, option.inert) for option in _sorted(ACCEPTED_TOPIC_KEYS.values())
    ]
    parts.append(_RESOURCES)
    parts += [_resource_row(option) for option in GroupConfig.by_key.values()]
    parts.append(_METRICS)
    parts += [_resource_row(option) for option in ClientMetricsConfig.by_key.values()]
    return "".join(parts)


def _resource_row(option: Option) -> str:
    default = f"the broker's `{option.inherits.key}`" if option.inherits is not None else _default(option)
    return _row(f"`{option.key}`", option.kind.name, default, option.allowed, _meaning(option))


def _meaning(option: Option) -> str:
    return f"{option.doc} *No effect*: {option.inert}." if option.inert else option.doc


def _broker_row(option: Option, topic_key: str) -> str:
    default = _default(option)
    if option.kafka is not None:
        default += f" (Kafka: {option.kafka})"
    kind = f"{option.kind.name} ↻" if option.is_dynamic else option.kind.name
    topic = f"`{topic_key}`" if topic_key else ""
    return _row(f"`{option.key}`", kind, default, option.allowed, topic, _meaning(option))


def _default(option: Option) -> str:
    if option.coarser:
        return f"from `{option.coarser[0][0].key}`"
    if option.inherits is not None and option.inherits.coarser:
        return f"from `{option.inherits.coarser[0][0].key}`"
    named = {INT_MAX: "2^31-1", LONG_MAX: "2^63-1"}
    if isinstance(option.default, int) and option.default in named:
        return named[option.default]
    return option.show(option.default) or "(none)"


def _sorted(options: Iterable[Option]) -> list[Option]:
    return sorted(options, key=lambda option: option.key)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    sys.stdout.write(render_reference())
