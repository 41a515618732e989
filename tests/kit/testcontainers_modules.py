"""What the Kafka modules of Testcontainers do to a container: their command, environment, script, and awaited line.

Read from their sources: Java 2.0.5, Python 4.15, Go 0.45, Node 12.1, .NET 4.13. A module starts the container with a
command that waits for a script, learns the mapped port, copies the script, which has the advertised address, and waits
for a line of the log. Here the ports are a test's own, since the tests have no network namespaces; all else is theirs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"

BY_MODULES = (
    "/tmp/testcontainers_start.sh",
    "/usr/sbin/testcontainers_start.sh",
    "/testcontainers.sh",
    "/tc-start.sh",
    "/tmp/zookeeper.properties",
)
"""The files that modules and their scripts write outside of the directories of the image."""

_IN_TMP, _IN_SBIN, _DOTNETS, _PYTHONS, _ZOOKEEPER = BY_MODULES
_RUNNING = r".*Transitioning from RECOVERY to RUNNING.*"
_STARTED = r".*\[KafkaServer id=\d+\] started.*"


class Ports(NamedTuple):
    """Of the listeners for the test and for other containers, and ZooKeeper's."""

    client: int
    broker: int
    zookeeper: int


class Module(NamedTuple):
    """One way to start a container. In the texts `{client}`, `{broker}` and `{zookeeper}` are ports."""

    name: str
    script: str
    """Where the script is copied to."""
    lines: str
    """The script; `{advertised}` are its advertised listeners."""
    waits_for: str
    entry_point: tuple[str, ...] | None = None
    """None: the image's own."""
    command: str = "{script}"
    """What runs the script when it is there."""
    more: dict[str, str] = {}  # noqa: RUF012  (a NamedTuple's default)
    """The environment beside what all modules set."""

    def words(self) -> list[str]:
        """The command, after the entry point."""
        line = f"while [ ! -f {self.script} ]; do sleep 0.1; done; {self.command.format(script=self.script)}"
        if self.entry_point is None:
            return ["sh", "-c", line]
        return [line] if "-c" in self.entry_point else ["-c", line]

    def environment(self, ports: Ports) -> dict[str, str]:
        """The variables of the container."""
        variables = {
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:{client},BROKER://0.0.0.0:{broker}",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            **self.more,
        }
        return {name: value.format(**ports._asdict()) for name, value in variables.items()}

    def content(self, ports: Ports) -> str:
        """The script."""
        advertised = f"PLAINTEXT://127.0.0.1:{ports.client},BROKER://127.0.0.1:{ports.broker}"
        return self.lines.format(advertised=advertised, **ports._asdict())


_KRAFT = {
    "CLUSTER_ID": CLUSTER_ID,
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_LISTENERS": "CONTROLLER://0.0.0.0:9094,PLAINTEXT://0.0.0.0:{client},BROKER://0.0.0.0:{broker}",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}
_OWN_ZOOKEEPER = {"KAFKA_ZOOKEEPER_CONNECT": "localhost:{zookeeper}"}
_NO_ROLES = {name: value for name, value in _KRAFT.items() if not re.search("ROLES|LISTENER_NAMES", name)}

_BASH = "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\n"
STORAGE = "kafka-storage format --ignore-formatted -t {id} -c /etc/kafka/kafka.properties"
_FORMAT = (
    "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
    f"echo '{STORAGE}' >> /etc/confluent/docker/configure\n"
)
_SKIP_CHECKS = "echo '' > /etc/confluent/docker/ensure\n"
_START_ZOOKEEPER = (
    "echo 'clientPort={zookeeper}' > /tmp/zookeeper.properties\n"
    "echo 'dataDir=/var/lib/zookeeper/data' >> /tmp/zookeeper.properties\n"
    "zookeeper-server-start /tmp/zookeeper.properties &\n"
)
_BY_STEPS = ". /etc/confluent/docker/bash-config\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch\n"
CONFLUENT_RUN = "/etc/confluent/docker/run \n"
_FORMAT_CLUSTER = _FORMAT.replace("{id}", f'"{CLUSTER_ID}"')
_FORMAT_RANDOM = _FORMAT.replace("{id}", '"$(kafka-storage random-uuid)"')
_SH = ("sh",)

MODULES = [
    Module("java", _IN_TMP, f"{_BASH}/etc/kafka/docker/run \n", _RUNNING, more=_KRAFT),
    Module("java-confluent", _IN_TMP, _BASH + CONFLUENT_RUN, _RUNNING, more=_KRAFT),
    Module("java-old-kraft", _IN_TMP, _BASH + _FORMAT_CLUSTER + CONFLUENT_RUN, _RUNNING, _SH, more=_KRAFT),
    Module(
        "java-old-and-node-zookeeper",
        _IN_TMP,
        _BASH + _SKIP_CHECKS + _START_ZOOKEEPER + CONFLUENT_RUN,
        _STARTED,
        _SH,
        more=_OWN_ZOOKEEPER,
    ),
    Module(
        "python-zookeeper",
        _PYTHONS,
        f"{_START_ZOOKEEPER}export KAFKA_ZOOKEEPER_CONNECT='localhost:{{zookeeper}}'\n"
        f"export KAFKA_ADVERTISED_LISTENERS={{advertised}}\n{_BY_STEPS}",
        _STARTED,
        command="sh {script}",
    ),
    Module(
        "python-kraft",
        _PYTHONS,
        f"{_FORMAT_CLUSTER}export KAFKA_ADVERTISED_LISTENERS={{advertised}}\n{_BY_STEPS}",
        r".*Kafka Server started.*",
        command="sh {script}",
        more=_KRAFT,
    ),
    Module(
        "go",
        _IN_SBIN,
        _BASH + _FORMAT_RANDOM + _SKIP_CHECKS + _BY_STEPS.replace(". ", "source ", 1),
        _RUNNING,
        _SH,
        command="bash {script}",
        more={
            **_KRAFT,
            "CLUSTER_ID": "kraftCluster",
            "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:{client},BROKER://0.0.0.0:{broker}",
        },
    ),
    Module(
        "dotnet",
        _DOTNETS,
        "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised},\nexec /etc/kafka/docker/run\n",
        _RUNNING,
        ("/bin/sh", "-c"),
        more={**_KRAFT, "KAFKA_LISTENERS": "PLAINTEXT://:{client},BROKER://:{broker},CONTROLLER://:9094"},
    ),
    Module(
        "dotnet-confluent",
        _DOTNETS,
        "#!/bin/bash\n"
        + _SKIP_CHECKS
        + _START_ZOOKEEPER
        + "export KAFKA_ADVERTISED_LISTENERS={advertised},\nexec /etc/confluent/docker/run\n",
        r"\[KafkaServer id=\d+\] started",
        ("/bin/sh", "-c"),
        more={**_NO_ROLES, **_OWN_ZOOKEEPER},
    ),
]
"""Each distinct way to start a container; `java-old` is `org.testcontainers.containers.KafkaContainer`."""
