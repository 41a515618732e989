"""The settings in `ottla.create.topics`, checked without a broker: a module of its own, since topics
inherit from the broker's configuration."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.config.created_topics import show_created_topics
from ottla.config.errors import ConfigError
from ottla.config.topic import TopicConfig

KEY = "ottla.create.topics"


def check_created_topics(config: BrokerConfig) -> None:
    """Raise ConfigError with the first entry that has a setting that no topic can have."""
    topics = config.ottla_create_topics
    for topic in topics:
        try:
            TopicConfig.validate(dict(topic.configs))
        except ConfigError as error:
            reason = f"{topic.entry}: {error}"
            raise ConfigError(KEY, show_created_topics(topics), reason, origin=str(config.origin_of(KEY))) from None
