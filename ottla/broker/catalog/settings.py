"""The settings of this broker that clients change while it runs: configurations, client quotas, feature levels, ACLs.

A change is a plan over the metadata image (`metadata/config_plans.py`, `quota_plans.py`, `feature_plans.py`,
`acl_plans.py`) that goes through the catalog's queue. It is written, synced and replayed, and only then in effect and
answered, so that the settings in effect are always those that a restart would find. "In effect" means: the broker's
configuration has the new values; every topic whose configuration they affect has a new `TopicConfig`, and so have its
logs; the authorizer has the ACLs.

The plans are imported by the first change: a start needs none of them.

Callers: the catalog (`load`), API handlers, all on the broker's one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.broker.metadata.change_requests import ConfigRequest, ConfigResult, QuotaRequest, QuotaResult
from ottla.broker.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.config.errors import ConfigError
from ottla.config.topic import TopicConfig
from ottla.protocol.errors import KafkaError
from ottla.storage.formats.kafka_uuid import random_uuid

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.metadata.acl_plans import AclPlan, AclResult
    from ottla.broker.metadata.acls import Acl, AclFilter
    from ottla.broker.metadata.config_plans import CheckListeners
    from ottla.broker.metadata.feature_plans import FeatureRequest
    from ottla.broker.metadata.image import MetadataImage, QuotaEntity
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.stored.metadata import MetadataRecord

logger = logging.getLogger(__name__)


class ChangingCatalog(Protocol):
    """What settings need of the catalog: the present metadata, the topics, and the queue of changes."""

    node_id: int
    topics: dict[str, Topic]

    @property
    def image(self) -> MetadataImage:
        """The metadata."""

    def change(
        self, plan: Callable[[MetadataImage], Sequence[MetadataRecord]], done: Callable[[KafkaError | None], None]
    ) -> None:
        """Write the records of `plan`, in its turn; `done` once they are synced and replayed, or with the refusal."""


class Settings:
    """See the module."""

    def __init__(self, catalog: ChangingCatalog, config: BrokerConfig) -> None:
        self.on_broker_changed: Callable[[], None] | None = None
        """Called when this broker's configuration has changed, before the change is answered."""
        self.check_listeners: CheckListeners | None = None
        """Checks whether the listeners could work with settings that a client requests."""
        self.on_acls_changed: Callable[[Sequence[MetadataRecord]], None] | None = None
        """Called with the records of a change of ACLs, before the change is answered."""
        self.on_quotas: Callable[[Mapping[QuotaEntity, Mapping[str, float]]], None] | None = None
        """Called with the client quotas of changed entities, before the change is answered; at the start with all
        quotas.
        """
        self.changes = 0
        """Increases when a configuration has changed: what was resolved from one may be kept until then."""
        self._catalog = catalog
        self._config = config

    def load(self) -> None:
        """Apply this broker's configuration from the metadata; before the topics are created."""
        for warning in self._read_broker():
            logger.warning("%s", warning)
        if self.on_quotas is not None:
            self.on_quotas(self._catalog.image.quotas)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """The settings of a consumer group, by key; empty when there are none."""
        return self._catalog.image.group_configs(group_id)

    def alter_configs(
        self,
        requests: Sequence[ConfigRequest],
        done: Callable[[list[ConfigResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change configurations; `done` is called once, when the changes are synced and in effect."""
        from ottla.broker.metadata.config_plans import ConfigPlan, plan_configs

        planned = ConfigPlan([], [])

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan_configs(
                image, requests, self._config, validate_only=validate_only, check_listeners=self.check_listeners
            )
            return planned.records

        def finish(error: KafkaError | None) -> None:
            if error is not None:
                done([request.refused(error) for request in requests])
                return
            self._apply([result for result in planned.results if result.changed])
            done(planned.results)

        self._catalog.change(plan, finish)

    def alter_quotas(
        self,
        requests: Sequence[QuotaRequest],
        done: Callable[[list[QuotaResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set and remove quotas; `done` is called once, when the changes are synced and in effect."""
        from ottla.broker.metadata.quota_plans import QuotaPlan, plan_quotas

        planned = QuotaPlan([], [], [])

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan_quotas(image, requests, validate_only=validate_only)
            return planned.records

        def finish(error: KafkaError | None) -> None:
            if error is not None:
                done([QuotaResult(error.code, error.message) for _ in requests])
                return
            if planned.changed and self.on_quotas is not None:
                quotas = self._catalog.image.quotas
                self.on_quotas({entity: quotas.get(entity, {}) for entity in planned.changed})
            done(planned.results)

        self._catalog.change(plan, finish)

    def create_acls(self, acls: Sequence[Acl], done: Callable[[list[AclResult]], None]) -> None:
        """Create ACLs, each independently; `done` is called once, when they are synced and in effect."""
        from ottla.broker.metadata.acl_plans import plan_creation

        most = self._config.ottla_acls_max
        self._change_acls(lambda image: plan_creation(image, acls, most=most, new_id=random_uuid), len(acls), done)

    def delete_acls(self, filters: Sequence[AclFilter], done: Callable[[list[AclResult]], None]) -> None:
        """Delete the ACLs that filters match; `done` is called once, when the change is synced and in effect."""
        from ottla.broker.metadata.acl_plans import plan_deletion

        self._change_acls(lambda image: plan_deletion(image, filters), len(filters), done)

    def _change_acls(
        self, plan_acls: Callable[[MetadataImage], AclPlan], count: int, done: Callable[[list[AclResult]], None]
    ) -> None:
        from ottla.broker.metadata.acl_plans import AclPlan, AclResult

        planned = AclPlan([], [])

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan_acls(image)
            return planned.records

        def finish(error: KafkaError | None) -> None:
            if error is not None:
                done([AclResult(error.code, error.message)] * count)
                return
            if planned.records and self.on_acls_changed is not None:
                self.on_acls_changed(planned.records)
            done(planned.results)

        self._catalog.change(plan, finish)

    def update_features(
        self,
        requests: Sequence[FeatureRequest],
        done: Callable[[KafkaError | None], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Finalize levels of features, all or none; `done` gets the refusal, or None once the change is synced."""
        from ottla.broker.metadata.feature_plans import FeaturePlan, plan_features

        planned = FeaturePlan(None, ())

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan_features(image, requests)
            return () if validate_only else planned.records

        self._catalog.change(plan, lambda error: done(planned.error if error is None else error))

    # --- bringing a change into effect -----------------------------------------------------------------------------

    def _apply(self, results: Iterable[ConfigResult]) -> None:
        """Apply the changes. Each topic gets its new configuration once, however many keys changed."""
        topics: dict[str, Topic] = {}
        self.changes += 1
        for result in results:
            logger.info("configuration changed: %s", _named(result))
            if result.resource_type == BROKER_RESOURCE:
                self._read_broker()
                if self.on_broker_changed is not None:
                    self.on_broker_changed()
                topics = dict(self._catalog.topics)
        for result in results:
            topic = self._catalog.topics.get(result.name)
            if result.resource_type == TOPIC_RESOURCE and topic is not None:
                topics[topic.name] = topic
        for topic in topics.values():
            self._configure(topic)

    def _read_broker(self) -> list[str]:
        image = self._catalog.image
        return self._config.set_dynamic(
            node=image.configs.get((BROKER_RESOURCE, str(self._catalog.node_id)), {}),
            all_nodes=image.configs.get((BROKER_RESOURCE, ""), {}),
        )

    def _configure(self, topic: Topic) -> None:
        overrides = self._catalog.image.topic_configs(topic.name)
        try:
            config = TopicConfig.resolve(overrides, self._config)
        except ConfigError as error:
            # The plans refuse such changes; the topic keeps its configuration.
            logger.error("the configuration of topic %s cannot be used: %s", topic.name, error)
            return
        topic.overrides, topic.config = dict(overrides), config
        for partition in topic.partitions:
            if partition is not None:
                partition.configure(config)


def _named(result: ConfigResult) -> str:
    kind = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker"}.get(result.resource_type, "resource")
    return f"{kind} {result.name or '(default)'}"
