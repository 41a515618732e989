"""Keys of Kafka that many server.properties files contain, and that have no meaning on one node.

Ottla accepts them so that such a file works unchanged. They are checked for their type, shown by DescribeConfigs, and
have no effect; each has a reason. (Keys that will have an effect in a later version are declared with their topic, and
marked as inert.)
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ottla.config.declare import INT_MAX, LONG_MAX, SHORT_MAX, integer_parser, read_number
from ottla.config.options import ConfigType, Option

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST, _PASSWORD = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.PASSWORD
_SHORT, _CLASS = ConfigType.SHORT, ConfigType.CLASS

_THREADS = "one event loop and a few threads do the work"
_REPLICAS = "there are no followers and no other broker"
_CONTROLLER = "the broker is its own controller"
_REMOVED = "Kafka 4 has removed it"
_REMOTE = "there is no remote storage"
_JAVA = "it names a Java class"
_LOGINS = "it is for clients that fetch tokens; no broker logs in to another"
_JAVA_TLS = "it is about the TLS of Java"
_AT_ONCE = "partitions are assigned at once"
_DECOMPRESSED = "`ottla.batch.max.decompressed.bytes` limits a batch"

PER_BROKER_KEYS = frozenset(
    {
        "cordoned.log.dirs",
        "principal.builder.class",
        "sasl.kerberos.service.name",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
    }
)
"""Keys that Kafka allows to change for one running broker, but not for all (`DynamicBrokerConfig.PerBrokerConfigs`).
Its keys that would turn on a protection, or name one, are not here: setting them is refused."""

_DYNAMIC = PER_BROKER_KEYS | frozenset(
    {
        "num.network.threads",
        "num.io.threads",
        "background.threads",
        "num.replica.fetchers",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "transaction.partition.verification.enable",
        "log.local.retention.ms",
        "log.local.retention.bytes",
        "log.remote.copy.lag.ms",
        "log.remote.copy.lag.bytes",
        "max.decompressed.message.bytes",
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "share.coordinator.cached.buffer.max.bytes",
        "remote.log.manager.follower.thread.pool.size",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.reader.threads",
    }
)
"""Keys that Kafka allows to change while the broker runs; a tool that changes one is not refused."""

_BROKER_KEYS: dict[str, dict[str, tuple[ConfigType, str]]] = {
    _THREADS: {
        "num.network.threads": (_INT, "3"),
        "num.io.threads": (_INT, "8"),
        "background.threads": (_INT, "10"),
        "num.replica.alter.log.dirs.threads": (_INT, ""),
        "fetch.purgatory.purge.interval.requests": (_INT, "1000"),
        "producer.purgatory.purge.interval.requests": (_INT, "1000"),
        "delete.records.purgatory.purge.interval.requests": (_INT, "1"),
        "log.initial.task.delay.ms": (_LONG, "30000"),
        "log.dir.failure.timeout.ms": (_LONG, "30000"),
        "group.coordinator.background.threads": (_INT, "2"),
    },
    _REPLICAS: {
        "num.replica.fetchers": (_INT, "1"),
        "replica.fetch.min.bytes": (_INT, "1"),
        "replica.fetch.max.bytes": (_INT, "1048576"),
        "replica.fetch.wait.max.ms": (_INT, "500"),
        "replica.fetch.backoff.ms": (_INT, "1000"),
        "replica.fetch.response.max.bytes": (_INT, "10485760"),
        "replica.lag.time.max.ms": (_LONG, "30000"),
        "replica.socket.timeout.ms": (_INT, "30000"),
        "replica.socket.receive.buffer.bytes": (_INT, "65536"),
        "replica.selector.class": (_STRING, ""),
        "auto.leader.rebalance.enable": (_BOOLEAN, "true"),
        "leader.imbalance.check.interval.seconds": (_LONG, "300"),
        "leader.imbalance.per.broker.percentage": (_INT, "10"),
        "controlled.shutdown.enable": (_BOOLEAN, "true"),
        "controlled.shutdown.max.retries": (_INT, "3"),
        "controlled.shutdown.retry.backoff.ms": (_LONG, "5000"),
        "replication.quota.window.num": (_INT, "11"),
        "replication.quota.window.size.seconds": (_INT, "1"),
        "alter.log.dirs.replication.quota.window.num": (_INT, "11"),
        "alter.log.dirs.replication.quota.window.size.seconds": (_INT, "1"),
        "leader.replication.throttled.rate": (_LONG, ""),
        "follower.replication.throttled.rate": (_LONG, ""),
        "replica.alter.log.dirs.io.max.bytes.per.second": (_DOUBLE, ""),
        "socket.connection.setup.timeout.max.ms": (_LONG, "30000"),
        "socket.connection.setup.timeout.ms": (_LONG, "10000"),
    },
    _CONTROLLER: {
        "controller.quorum.election.timeout.ms": (_INT, "1000"),
        "controller.quorum.election.backoff.max.ms": (_INT, "1000"),
        "controller.quorum.fetch.timeout.ms": (_INT, "2000"),
        "controller.quorum.fetch.max.bytes": (_INT, "1048576"),
        "controller.quorum.fetch.snapshot.max.bytes": (_INT, "1048576"),
        "controller.quorum.auto.join.enable": (_BOOLEAN, "false"),
        "controller.quorum.append.linger.ms": (_INT, "25"),
        "controller.quorum.request.timeout.ms": (_INT, "2000"),
        "controller.quorum.retry.backoff.ms": (_INT, "20"),
        "controller.performance.sample.period.ms": (_LONG, "60000"),
        "controller.performance.always.log.threshold.ms": (_LONG, "2000"),
        "controller.socket.timeout.ms": (_INT, "30000"),
        "broker.heartbeat.interval.ms": (_INT, "2000"),
        "broker.session.timeout.ms": (_INT, "9000"),
        "initial.broker.registration.timeout.ms": (_INT, "60000"),
        "server.max.startup.time.ms": (_LONG, ""),
        "early.start.listeners": (_LIST, ""),
        "metadata.log.segment.bytes": (_INT, "1073741824"),
        "metadata.log.segment.ms": (_LONG, "604800000"),
        "metadata.max.idle.interval.ms": (_INT, "500"),
        "metadata.max.retention.bytes": (_LONG, "104857600"),
        "metadata.max.retention.ms": (_LONG, "604800000"),
        "unstable.api.versions.enable": (_BOOLEAN, "false"),
        "unstable.feature.versions.enable": (_BOOLEAN, "false"),
    },
    _REMOVED: {
        "log.message.format.version": (_STRING, ""),
        "inter.broker.protocol.version": (_STRING, ""),
        "log.message.downconversion.enable": (_BOOLEAN, "true"),
        "log.message.timestamp.difference.max.ms": (_LONG, ""),
        "control.plane.listener.name": (_STRING, ""),
        "broker.id.generation.enable": (_BOOLEAN, "true"),
        "reserved.broker.max.id": (_INT, "1000"),
        "password.encoder.secret": (_PASSWORD, ""),
        "password.encoder.old.secret": (_PASSWORD, ""),
        "offsets.commit.required.acks": (_INT, "-1"),
        "host.name": (_STRING, ""),
        "port": (_INT, ""),
        "advertised.host.name": (_STRING, ""),
        "advertised.port": (_INT, ""),
    },
    _REMOTE: {
        "remote.log.storage.system.enable": (_BOOLEAN, "false"),
        "remote.log.storage.manager.class.name": (_STRING, ""),
        "remote.log.metadata.manager.class.name": (
            _STRING,
            "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        ),
        "log.local.retention.ms": (_LONG, "-2"),
        "log.local.retention.bytes": (_LONG, "-2"),
        "log.remote.copy.lag.ms": (_LONG, "0"),
        "log.remote.copy.lag.bytes": (_LONG, "-1"),
        "follower.fetch.last.tiered.offset.enable": (_BOOLEAN, "false"),
        "remote.log.manager.follower.thread.pool.size": (_INT, "2"),
        "remote.fetch.max.wait.ms": (_INT, "500"),
        "remote.list.offsets.request.timeout.ms": (_LONG, "30000"),
        "remote.log.index.file.cache.total.size.bytes": (_LONG, "1073741824"),
        "remote.log.manager.copier.thread.pool.size": (_INT, "10"),
        "remote.log.manager.copy.max.bytes.per.second": (_LONG, "9223372036854775807"),
        "remote.log.manager.copy.quota.window.num": (_INT, "11"),
        "remote.log.manager.copy.quota.window.size.seconds": (_INT, "1"),
        "remote.log.manager.expiration.thread.pool.size": (_INT, "10"),
        "remote.log.manager.fetch.max.bytes.per.second": (_LONG, "9223372036854775807"),
        "remote.log.manager.fetch.quota.window.num": (_INT, "11"),
        "remote.log.manager.fetch.quota.window.size.seconds": (_INT, "1"),
        "remote.log.manager.task.interval.ms": (_LONG, "30000"),
        "remote.log.manager.thread.pool.size": (_INT, "2"),
        "remote.log.metadata.custom.metadata.max.bytes": (_INT, "128"),
        "remote.log.metadata.manager.class.path": (_STRING, ""),
        "remote.log.metadata.manager.impl.prefix": (_STRING, "rlmm.config."),
        "remote.log.metadata.manager.listener.name": (_STRING, ""),
        "remote.log.reader.max.pending.tasks": (_INT, "100"),
        "remote.log.reader.threads": (_INT, "10"),
        "remote.log.storage.manager.class.path": (_STRING, ""),
        "remote.log.storage.manager.impl.prefix": (_STRING, "rsm.config."),
    },
    _JAVA: {
        "alter.config.policy.class.name": (_CLASS, ""),
        "create.topic.policy.class.name": (_CLASS, ""),
        "principal.builder.class": (
            _CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        ),
        "client.quota.callback.class": (_CLASS, ""),
        "group.streams.topology.description.plugin.class": (_CLASS, ""),
        "security.providers": (_STRING, ""),
        "ssl.engine.factory.class": (_CLASS, ""),
        "sasl.login.class": (_CLASS, ""),
        "sasl.login.callback.handler.class": (_CLASS, ""),
        "sasl.server.callback.handler.class": (_CLASS, ""),
        "sasl.client.callback.handler.class": (_CLASS, ""),
        "kafka.metrics.reporters": (_LIST, ""),
        "kafka.metrics.polling.interval.secs": (_INT, "10"),
        "metrics.num.samples": (_INT, "2"),
        "metrics.sample.window.ms": (_LONG, "30000"),
        "metrics.recording.level": (_STRING, "INFO"),
        "auto.include.jmx.reporter": (_BOOLEAN, "true"),
        "telemetry.max.bytes": (_INT, "1048576"),
        "config.providers": (_LIST, ""),
    },
    _AT_ONCE: {
        "group.consumer.assignment.interval.ms": (_INT, "1000"),
        "group.consumer.max.assignment.interval.ms": (_INT, "15000"),
        "group.consumer.min.assignment.interval.ms": (_INT, "0"),
        "group.share.assignment.interval.ms": (_INT, "1000"),
        "group.share.max.assignment.interval.ms": (_INT, "15000"),
        "group.share.min.assignment.interval.ms": (_INT, "0"),
    },
    "the coordinators keep no buffers": {
        "group.coordinator.cached.buffer.max.bytes": (_INT, "1048588"),
        "share.coordinator.cached.buffer.max.bytes": (_INT, "1048588"),
    },
    _DECOMPRESSED: {"max.decompressed.message.bytes": (_INT, "2147483639")},
    "a token's issuer and audience are verified where `sasl.oauthbearer.expected.issuer` and `.audience` are set": {
        "sasl.oauthbearer.allow.unverified.audience": (_BOOLEAN, "false"),
        "sasl.oauthbearer.allow.unverified.issuer": (_BOOLEAN, "false"),
    },
    "two-phase commit (KIP-939) is not served": {
        "transaction.two.phase.commit.enable": (_BOOLEAN, "false"),
    },
    "the coordinator is in the same process and never asked twice": {
        "add.partitions.to.txn.retry.backoff.max.ms": (_INT, "100"),
        "add.partitions.to.txn.retry.backoff.ms": (_INT, "20"),
    },
    "a page of DescribeTopicPartitions is at most 2000": {
        "max.request.partition.size.limit": (_INT, "2000"),
    },
    "Kerberos is not served": {
        "sasl.kerberos.service.name": (_STRING, ""),
        "sasl.kerberos.kinit.cmd": (_STRING, "/usr/bin/kinit"),
        "sasl.kerberos.min.time.before.relogin": (_LONG, "60000"),
        "sasl.kerberos.ticket.renew.jitter": (_DOUBLE, "0.05"),
        "sasl.kerberos.ticket.renew.window.factor": (_DOUBLE, "0.8"),
        "sasl.kerberos.principal.to.local.rules": (_LIST, "DEFAULT"),
    },
    _LOGINS: {
        "sasl.login.connect.timeout.ms": (_INT, ""),
        "sasl.login.read.timeout.ms": (_INT, ""),
        "sasl.login.refresh.buffer.seconds": (_SHORT, "300"),
        "sasl.login.refresh.min.period.seconds": (_SHORT, "60"),
        "sasl.login.refresh.window.factor": (_DOUBLE, "0.8"),
        "sasl.login.refresh.window.jitter": (_DOUBLE, "0.05"),
        "sasl.login.retry.backoff.max.ms": (_LONG, "10000"),
        "sasl.login.retry.backoff.ms": (_LONG, "100"),
        "sasl.oauthbearer.assertion.algorithm": (_STRING, "RS256"),
        "sasl.oauthbearer.assertion.claim.aud": (_STRING, ""),
        "sasl.oauthbearer.assertion.claim.exp.seconds": (_INT, "300"),
        "sasl.oauthbearer.assertion.claim.iss": (_STRING, ""),
        "sasl.oauthbearer.assertion.claim.jti.include": (_BOOLEAN, "false"),
        "sasl.oauthbearer.assertion.claim.nbf.seconds": (_INT, "60"),
        "sasl.oauthbearer.assertion.claim.sub": (_STRING, ""),
        "sasl.oauthbearer.assertion.file": (_STRING, ""),
        "sasl.oauthbearer.assertion.private.key.file": (_STRING, ""),
        "sasl.oauthbearer.assertion.private.key.passphrase": (_PASSWORD, ""),
        "sasl.oauthbearer.assertion.template.file": (_STRING, ""),
        "sasl.oauthbearer.client.credentials.client.id": (_STRING, ""),
        "sasl.oauthbearer.client.credentials.client.secret": (_PASSWORD, ""),
        "sasl.oauthbearer.jwt.retriever.class": (
            _CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        ),
        "sasl.oauthbearer.jwt.validator.class": (
            _CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        ),
        "sasl.oauthbearer.scope": (_STRING, ""),
        "sasl.oauthbearer.token.endpoint.url": (_STRING, ""),
    },
    _JAVA_TLS: {
        "ssl.allow.dn.changes": (_BOOLEAN, "false"),
        "ssl.allow.san.changes": (_BOOLEAN, "false"),
        "ssl.keymanager.algorithm": (_STRING, "SunX509"),
        "ssl.provider": (_STRING, ""),
        "ssl.secure.random.implementation": (_STRING, ""),
        "ssl.trustmanager.algorithm": (_STRING, "PKIX"),
    },
}

_TOPIC_KEYS: dict[str, dict[str, tuple[ConfigType, str]]] = {
    _REMOTE: {
        "remote.storage.enable": (_BOOLEAN, "false"),
        "remote.log.copy.disable": (_BOOLEAN, "false"),
        "remote.log.delete.on.disable": (_BOOLEAN, "false"),
        "local.retention.ms": (_LONG, "-2"),
        "local.retention.bytes": (_LONG, "-2"),
        "remote.copy.lag.ms": (_LONG, "0"),
        "remote.copy.lag.bytes": (_LONG, "-1"),
    },
    _DECOMPRESSED: {"max.decompressed.message.bytes": (_INT, "2147483639")},
    _REPLICAS: {
        "leader.replication.throttled.replicas": (_LIST, ""),
        "follower.replication.throttled.replicas": (_LIST, ""),
    },
    _REMOVED: {
        "message.format.version": (_STRING, ""),
        "message.downconversion.enable": (_BOOLEAN, "true"),
        "message.timestamp.difference.max.ms": (_LONG, ""),
    },
}


def _boolean(text: str) -> object:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _number(text: str) -> object:
    return read_number(text, "a number")


_THROTTLED = "`*`, or a list of partition:broker"


def _throttled_replicas(text: str) -> object:
    items = [item.strip() for item in text.split(",")] if text else []
    if items != ["*"] and not all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in items):
        raise ValueError(f"must be {_THROTTLED}")
    return ",".join(items)


_PARSERS: dict[ConfigType, tuple[Callable[[str], object], str]] = {
    _BOOLEAN: (_boolean, "true or false"),
    _SHORT: integer_parser(-SHORT_MAX - 1, SHORT_MAX),
    _INT: integer_parser(-INT_MAX - 1, INT_MAX),
    _LONG: integer_parser(-LONG_MAX - 1, LONG_MAX),
    _DOUBLE: (_number, "a number"),
    _STRING: (str, "text"),
    _CLASS: (str, "text"),
    _PASSWORD: (str, "text"),
    _LIST: (str, "a comma-separated list"),
}
_LOCAL_RETENTION = integer_parser(-2, LONG_MAX)
_COPY_LAG = integer_parser(-1, LONG_MAX)
_DECOMPRESSED_BYTES = integer_parser(1, INT_MAX - 8)
_PARSERS_OF_KEYS: dict[str, tuple[Callable[[str], object], str]] = {
    "local.retention.ms": _LOCAL_RETENTION,
    "local.retention.bytes": _LOCAL_RETENTION,
    "log.local.retention.ms": _LOCAL_RETENTION,
    "log.local.retention.bytes": _LOCAL_RETENTION,
    "remote.copy.lag.ms": _COPY_LAG,
    "remote.copy.lag.bytes": _COPY_LAG,
    "log.remote.copy.lag.ms": _COPY_LAG,
    "log.remote.copy.lag.bytes": _COPY_LAG,
    "max.decompressed.message.bytes": _DECOMPRESSED_BYTES,
    "kafka.metrics.reporters": (str, "a comma-separated list"),
    "leader.replication.throttled.replicas": (_throttled_replicas, _THROTTLED),
    "follower.replication.throttled.replicas": (_throttled_replicas, _THROTTLED),
}
"""Parsers of keys whose type is not specific enough; the default of such a key may be the empty text."""


def _options(reasons: dict[str, dict[str, tuple[ConfigType, str]]]) -> dict[str, Option]:
    options = {}
    for reason, keys in reasons.items():
        for key, (kind, default) in keys.items():
            parse, allowed = _PARSERS_OF_KEYS.get(key) or _PARSERS[kind]
            value = parse(default) if default or key in _PARSERS_OF_KEYS else None
            options[key] = Option(
                kind,
                value,
                parse,
                allowed,
                "Accepted, without effect.",
                inert=reason,
                is_dynamic=key in _DYNAMIC,
                key=key,
            )
    return options


ACCEPTED_BROKER_KEYS = _options(_BROKER_KEYS)
ACCEPTED_TOPIC_KEYS = _options(_TOPIC_KEYS)
for _key in ("local.retention.ms", "local.retention.bytes", "remote.copy.lag.ms", "remote.copy.lag.bytes"):
    ACCEPTED_TOPIC_KEYS[_key].inherits = ACCEPTED_BROKER_KEYS[f"log.{_key}"]
ACCEPTED_TOPIC_KEYS["max.decompressed.message.bytes"].inherits = ACCEPTED_BROKER_KEYS["max.decompressed.message.bytes"]
REMOVED_KEYS = frozenset(_BROKER_KEYS[_REMOVED]) | frozenset(_TOPIC_KEYS[_REMOVED])
"""Keys that Kafka 4 does not know either: reported only where they are set."""
