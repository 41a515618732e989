"""Keys that Kafka has, that stand in many people's server.properties, and that mean nothing on one node.

They are accepted so that such a file works as it is, checked for their type, shown by DescribeConfigs, and have no
effect; each has the reason. (Keys that will have an effect in a later version stand with their kind, marked inert.)
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.config.options import ConfigType, Option

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST, _PASSWORD = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.PASSWORD

_THREADS = "one event loop and a few threads of its own do the work"
_REPLICAS = "there are no followers and no other broker"
_CONTROLLER = "the broker is its own controller"
_REMOVED = "Kafka 4 has removed it"
_REMOTE = "there is no remote storage"
_TOKENS = "there are no delegation tokens"
_JAVA = "it names a Java class"
_SHARE = "share groups and streams groups are not served"

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
    },
    _CONTROLLER: {
        "controller.quorum.election.timeout.ms": (_INT, "1000"),
        "controller.quorum.election.backoff.max.ms": (_INT, "1000"),
        "controller.quorum.fetch.timeout.ms": (_INT, "2000"),
        "controller.quorum.append.linger.ms": (_INT, "25"),
        "controller.quorum.request.timeout.ms": (_INT, "2000"),
        "controller.quorum.retry.backoff.ms": (_INT, "20"),
        "controller.quota.window.num": (_INT, "11"),
        "controller.quota.window.size.seconds": (_INT, "1"),
        "controller.performance.sample.period.ms": (_LONG, "60000"),
        "controller.performance.always.log.threshold.ms": (_LONG, "2000"),
        "controller.socket.timeout.ms": (_INT, "30000"),
        "broker.heartbeat.interval.ms": (_INT, "2000"),
        "broker.session.timeout.ms": (_INT, "9000"),
        "initial.broker.registration.timeout.ms": (_INT, "60000"),
        "server.max.startup.time.ms": (_LONG, ""),
        "early.start.listeners": (_STRING, ""),
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
        "remote.log.metadata.manager.class.name": (_STRING, ""),
        "log.local.retention.ms": (_LONG, "-2"),
        "log.local.retention.bytes": (_LONG, "-2"),
    },
    _TOKENS: {
        "delegation.token.secret.key": (_PASSWORD, ""),
        "delegation.token.max.lifetime.ms": (_LONG, "604800000"),
        "delegation.token.expiry.time.ms": (_LONG, "86400000"),
        "delegation.token.expiry.check.interval.ms": (_LONG, "3600000"),
    },
    _JAVA: {
        "alter.config.policy.class.name": (_STRING, ""),
        "create.topic.policy.class.name": (_STRING, ""),
        "principal.builder.class": (_STRING, ""),
        "client.quota.callback.class": (_STRING, ""),
        "security.providers": (_STRING, ""),
        "ssl.engine.factory.class": (_STRING, ""),
        "sasl.login.class": (_STRING, ""),
        "sasl.login.callback.handler.class": (_STRING, ""),
        "sasl.server.callback.handler.class": (_STRING, ""),
        "sasl.client.callback.handler.class": (_STRING, ""),
        "kafka.metrics.reporters": (_LIST, ""),
        "kafka.metrics.polling.interval.secs": (_INT, "10"),
        "metrics.num.samples": (_INT, "2"),
        "metrics.sample.window.ms": (_LONG, "30000"),
        "metrics.recording.level": (_STRING, "INFO"),
        "auto.include.jmx.reporter": (_BOOLEAN, "true"),
        "telemetry.max.bytes": (_INT, "1048576"),
        "config.providers": (_LIST, ""),
    },
    "the answer follows from `transaction.version`": {
        "transaction.partition.verification.enable": (_BOOLEAN, "true"),
        "transaction.two.phase.commit.enable": (_BOOLEAN, "false"),
    },
    "Kerberos is not served": {
        "sasl.kerberos.service.name": (_STRING, ""),
        "sasl.kerberos.kinit.cmd": (_STRING, "/usr/bin/kinit"),
        "sasl.kerberos.min.time.before.relogin": (_LONG, "60000"),
        "sasl.kerberos.ticket.renew.jitter": (_DOUBLE, "0.05"),
        "sasl.kerberos.ticket.renew.window.factor": (_DOUBLE, "0.8"),
        "sasl.kerberos.principal.to.local.rules": (_LIST, "DEFAULT"),
    },
    _SHARE: {
        "group.share.enable": (_BOOLEAN, "false"),
        "group.share.delivery.count.limit": (_INT, "5"),
        "group.share.record.lock.duration.ms": (_INT, "30000"),
        "group.share.min.record.lock.duration.ms": (_INT, "15000"),
        "group.share.max.record.lock.duration.ms": (_INT, "60000"),
        "group.share.partition.max.record.locks": (_INT, "200"),
        "group.share.session.timeout.ms": (_INT, "45000"),
        "group.share.min.session.timeout.ms": (_INT, "45000"),
        "group.share.max.session.timeout.ms": (_INT, "60000"),
        "group.share.heartbeat.interval.ms": (_INT, "5000"),
        "group.share.min.heartbeat.interval.ms": (_INT, "5000"),
        "group.share.max.heartbeat.interval.ms": (_INT, "15000"),
        "group.share.max.size": (_INT, "200"),
        "share.coordinator.state.topic.num.partitions": (_INT, "50"),
        "share.coordinator.state.topic.replication.factor": (_INT, "3"),
        "share.coordinator.state.topic.min.isr": (_INT, "2"),
    },
}

_TOPIC_KEYS: dict[str, dict[str, tuple[ConfigType, str]]] = {
    _REMOTE: {
        "remote.storage.enable": (_BOOLEAN, "false"),
        "remote.log.copy.disable": (_BOOLEAN, "false"),
        "remote.log.delete.on.disable": (_BOOLEAN, "false"),
        "local.retention.ms": (_LONG, "-2"),
        "local.retention.bytes": (_LONG, "-2"),
    },
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


def _number(read: Callable[[str], object], allowed: str) -> Callable[[str], object]:
    def parse(text: str) -> object:
        try:
            return read(text) if text and len(text) < 400 else None
        except ValueError:
            raise ValueError(f"must be {allowed}") from None

    return parse


_PARSERS: dict[ConfigType, tuple[Callable[[str], object], str]] = {
    _BOOLEAN: (_boolean, "true or false"),
    _INT: (_number(int, "an integer"), "an integer"),
    _LONG: (_number(int, "an integer"), "an integer"),
    _DOUBLE: (_number(float, "a number"), "a number"),
    _STRING: (str, "text"),
    _PASSWORD: (str, "text"),
    _LIST: (str, "a comma-separated list"),
}


def _options(reasons: dict[str, dict[str, tuple[ConfigType, str]]]) -> dict[str, Option]:
    options = {}
    for reason, keys in reasons.items():
        for key, (kind, default) in keys.items():
            parse, allowed = _PARSERS[kind]
            value = parse(default) if default else None
            options[key] = Option(kind, value, parse, allowed, "Accepted, without effect.", inert=reason, key=key)
    return options


ACCEPTED_BROKER_KEYS = _options(_BROKER_KEYS)
ACCEPTED_TOPIC_KEYS = _options(_TOPIC_KEYS)
