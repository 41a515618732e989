"""ACLs through real clients: their admin interfaces, and what users of more and less rights may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import kafka.admin
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kit.broker import BrokerProcess

import ottla.protocol.acls as numbers
from ottla import Admin
from ottla.client import Acl, AclFilter, AdminError, ErrorCode, KafkaError, NewTopic

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="secret" user_bob="secret" user_carol="secret";'
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A listener with SASL for users, and one without for the administrator, who is ANONYMOUS there."""
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("rights"), keys) as process:
        yield process


@pytest.fixture(scope="module")
def plaintext(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.port_of('PLAINTEXT')}"


@pytest.fixture
def admin(plaintext: str) -> Iterator[Admin]:
    """The administrator, who leaves no ACL behind."""
    with Admin(plaintext) as made:
        yield made
        made.delete_acls([AclFilter()])


def of(user: str, broker: BrokerProcess, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "secret",
        **more,
    }


def topic(name: str, operation: numbers.AclOperation, user: str = "alice", **more: Any) -> Acl:
    return Acl(numbers.ResourceType.TOPIC, name, f"User:{user}", operation, **more)


def write(broker: BrokerProcess, user: str, name: str, **options: Any) -> confluent_kafka.KafkaError | None:
    """What the delivery of a record ends with."""
    ends: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(of(user, broker, **options))
    producer.produce(name, b"value", on_delivery=lambda error, _: ends.append(error))
    assert producer.flush(30) == 0
    return ends[0]


def read(broker: BrokerProcess, user: str, name: str, group: str) -> bytes | int:
    """The value of the first record, or the code of the error."""
    options = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(of(user, broker, **options))
    try:
        consumer.subscribe([name])
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        return message.value() or b"" if error is None else int(error.code())
    finally:
        consumer.close()


def test_users_write_and_read_what_they_may_and_nothing_else(broker: BrokerProcess, admin: Admin) -> None:
    admin.create_topics([NewTopic("orders", 1), NewTopic("payments", 1)])
    o = numbers.AclOperation
    admin.create_acls(
        [
            topic("ord", o.WRITE, pattern_type=numbers.PatternType.PREFIXED),
            topic("orders", o.READ, "bob"),
            Acl(numbers.ResourceType.GROUP, "readers", "User:bob", o.READ),
        ]
    )
    assert write(broker, "alice", "orders") is None
    denied = write(broker, "alice", "payments")
    assert denied is not None
    assert denied.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert read(broker, "bob", "orders", "readers") == b"value"
    assert read(broker, "bob", "orders", "others") == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert read(broker, "bob", "payments", "readers") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    names = AdminClient(of("bob", broker)).list_topics(timeout=30).topics
    assert set(names) == {"orders"}, "topics that a user may not describe are not shown"
    denial = topic("orders", o.WRITE, permission=numbers.PermissionType.DENY)
    admin.create_acls([denial])
    again = write(broker, "alice", "orders")
    assert again is not None
    assert again.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    admin.delete_acls([AclFilter(principal="User:alice", permission=numbers.PermissionType.DENY)])
    assert write(broker, "alice", "orders") is None


def test_a_producer_that_is_connected_stops_when_its_right_is_taken_away(broker: BrokerProcess, admin: Admin) -> None:
    admin.create_topic("taken")
    admin.create_acls([topic("taken", numbers.AclOperation.WRITE)])
    producer = confluent_kafka.Producer(of("alice", broker, **{"enable.idempotence": False, "linger.ms": 0}))
    ends: list[confluent_kafka.KafkaError | None] = []

    def send() -> confluent_kafka.KafkaError | None:
        producer.produce("taken", b"value", on_delivery=lambda error, _: ends.append(error))
        assert producer.flush(30) == 0
        return ends[-1]

    assert [send() for _ in range(5)] == [None] * 5
    admin.delete_acls([AclFilter(resource_name="taken")])
    error = send()
    assert error is not None
    assert error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    admin.create_acls([topic("taken", numbers.AclOperation.WRITE)])
    assert write(broker, "alice", "taken") is None  # by a new producer: this one fails by itself for some time


def test_a_user_who_takes_away_its_own_right_has_lost_it_and_a_super_user_gives_it_back(
    broker: BrokerProcess, admin: Admin
) -> None:
    right = Acl(numbers.ResourceType.CLUSTER, numbers.CLUSTER_NAME, "User:carol", numbers.AclOperation.ALTER)
    admin.create_acls([right])
    carols = AdminClient(of("carol", broker))
    binding = AclBinding(
        ResourceType.BROKER, numbers.CLUSTER_NAME, ResourcePatternType.LITERAL, "User:carol", "*", AclOperation.ALTER,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    wanted = AclBindingFilter(*binding_fields(binding))
    (gone,) = carols.delete_acls([wanted]).values()
    assert gone.result(30) == [binding]
    (refused,) = carols.create_acls([binding]).values()
    with pytest.raises(confluent_kafka.KafkaException) as error:
        refused.result(30)
    assert error.value.args[0].code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    admin.create_acls([right])
    assert carols.describe_acls(wanted).result(30) == [binding]


def binding_fields(one: AclBinding) -> tuple[Any, ...]:
    return (
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
    )  # fmt: skip


def test_confluent_kafka_creates_describes_and_deletes_acls(plaintext: str, admin: Admin) -> None:
    client = AdminClient({"bootstrap.servers": plaintext})
    bindings = [
        AclBinding(
            ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        ),
        AclBinding(
            ResourceType.GROUP, "g-", ResourcePatternType.PREFIXED, "User:CN=a b,O=ä", "::1", AclOperation.ALL,
            AclPermissionType.DENY,
        ),
    ]  # fmt: skip
    for done in client.create_acls(bindings).values():
        done.result(30)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert sorted(client.describe_acls(everything).result(30)) == sorted(bindings)
    matching = AclBindingFilter(
        ResourceType.GROUP, "g-1", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert client.describe_acls(matching).result(30) == [bindings[1]]
    (done,) = client.delete_acls([matching]).values()
    assert done.result(30) == [bindings[1]]
    assert client.describe_acls(everything).result(30) == [bindings[0]]


def test_kafka_python_creates_describes_and_deletes_acls(plaintext: str, admin: Admin) -> None:
    client = kafka.KafkaAdminClient(bootstrap_servers=plaintext)
    entry = kafka.admin.ACL(
        "User:b",
        "*",
        kafka.admin.ACLOperation.WRITE,
        kafka.admin.ACLPermissionType.ALLOW,
        kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, "orders"),
    )
    client.create_acls([entry])
    assert admin.describe_acls() == [topic("orders", numbers.AclOperation.WRITE, "b")]
    wanted = kafka.admin.ACLFilter(
        "User:b",
        None,
        kafka.admin.ACLOperation.ANY,
        kafka.admin.ACLPermissionType.ANY,
        kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.TOPIC, "orders", kafka.admin.ACLResourcePatternType.ANY
        ),
    )
    assert "User:b" in str(client.describe_acls(wanted))
    client.delete_acls([wanted])
    assert admin.describe_acls() == []
    client.close()


def test_the_bundled_admin_names_what_is_refused_and_does_the_rest(admin: Admin) -> None:
    good = topic("orders", numbers.AclOperation.READ)
    bad = topic("orders", numbers.AclOperation.ANY)
    with pytest.raises(AdminError) as refused:
        admin.create_acls([bad, good, good])
    assert {name: error.code for name, error in refused.value.errors.items()} == {
        "User:alice may ANY TOPIC orders": ErrorCode.INVALID_REQUEST
    }
    assert admin.describe_acls(AclFilter(principal="User:alice")) == [good]
    with pytest.raises(AdminError, match="filter 0"):
        admin.delete_acls([AclFilter(operation=numbers.AclOperation(0)), AclFilter(resource_name="orders")])
    assert admin.describe_acls() == []
    with pytest.raises(KafkaError) as unknown:
        admin.describe_acls(AclFilter(resource_type=numbers.ResourceType(0)))
    assert unknown.value.code == ErrorCode.INVALID_REQUEST
