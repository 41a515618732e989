"""confluent-kafka's client of registries and its serializers: they judge whether this one is a registry."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from ottla.testing import EmbeddedBroker

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "drink", "type": "string"}]}'
LARGER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "drink", "type": "string"}, '
    '{"name": "cups", "type": "int", "default": 1}]}'
)


@pytest.fixture
def client(broker: EmbeddedBroker, topic: str) -> Iterator[Any]:
    with broker.schema_registry(topic) as registry, SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def through_the_broker(broker: EmbeddedBroker, serializer: Any, deserializer: Any, value: object) -> Any:
    """The value, serialized, written, read and deserialized."""
    topic = broker.create_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, serializer(value, context))
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return deserializer(message.value(), context)
    finally:
        consumer.close()


def test_avro(broker: EmbeddedBroker, client: Any) -> None:
    serializer = AvroSerializer(client, ORDER)
    deserializer = AvroDeserializer(client, LARGER)
    assert through_the_broker(broker, serializer, deserializer, {"drink": "tea"}) == {"drink": "tea", "cups": 1}


def test_avro_with_the_latest_version(broker: EmbeddedBroker, client: Any) -> None:
    topic = broker.create_topic()
    client.register_schema(f"{topic}-value", Schema(LARGER, "AVRO"))
    serializer = AvroSerializer(client, conf={"auto.register.schemas": False, "use.latest.version": True})
    context = SerializationContext(topic, MessageField.VALUE)
    value = {"drink": "tea", "cups": 2}
    assert AvroDeserializer(client)(serializer(value, context), context) == value


def test_json_schema_with_a_reference(broker: EmbeddedBroker, client: Any) -> None:
    drink = '{"$id": "drink.json", "type": "string", "minLength": 1}'
    client.register_schema("drink", Schema(drink, "JSON"))
    order = '{"title": "Order", "type": "object", "properties": {"drink": {"$ref": "drink.json"}}}'
    schema = Schema(order, "JSON", [SchemaReference("drink.json", "drink", 1)])
    serializer = JSONSerializer(schema, client)
    deserializer = JSONDeserializer(schema, schema_registry_client=client)
    assert through_the_broker(broker, serializer, deserializer, {"drink": "tea"}) == {"drink": "tea"}
    assert client.get_latest_version("drink").schema.schema_type == "JSON"


def drink_and_order() -> Any:
    """The class of a message in a file that imports another one and a well-known one."""
    drink = pb.FileDescriptorProto(name="kitchen/drink.proto", package="kitchen", syntax="proto3")
    drink.message_type.add(name="Drink").field.add(name="name", number=1, label=1, type=9)
    order = pb.FileDescriptorProto(name="kitchen/order.proto", package="kitchen", syntax="proto3")
    order.dependency.extend(["kitchen/drink.proto", "google/protobuf/timestamp.proto"])
    message = order.message_type.add(name="Order")
    message.field.add(name="drink", number=1, label=1, type_name="Drink")
    message.field.add(name="at", number=2, label=1, type_name=".google.protobuf.Timestamp")
    pool = DescriptorPool()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp := pb.FileDescriptorProto())
    for file in (timestamp, drink, order):
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("kitchen.Order"))


def test_protobuf_with_an_imported_file(broker: EmbeddedBroker, client: Any) -> None:
    order = drink_and_order()
    serializer = ProtobufSerializer(order, client)
    deserializer = ProtobufDeserializer(order, {}, client)
    sent = order()
    sent.drink.name = "tea"
    sent.at.seconds = 5
    assert through_the_broker(broker, serializer, deserializer, sent) == sent
    assert "kitchen/drink.proto" in client.get_subjects()
    (subject,) = (one for one in client.get_subjects() if one.endswith("-value"))
    stored = client.get_latest_version(subject)
    assert stored.schema.schema_str.startswith('syntax = "proto3";\npackage kitchen;\nimport "kitchen/drink.proto";')
    assert [(one.name, one.version) for one in stored.schema.references] == [("kitchen/drink.proto", 1)]


def test_the_client_of_registries(client: Any) -> None:
    """Every call of its API that a registry without associations answers."""
    assert client.register_schema("orders", Schema(ORDER, "AVRO")) == 1
    assert client.test_compatibility("orders", Schema(LARGER, "AVRO"))
    assert client.register_schema("orders", Schema(LARGER, "AVRO")) == 2
    assert client.get_subjects() == ["orders"]
    assert client.get_versions("orders") == [1, 2]
    assert client.get_schema(1).schema_str == client.get_version("orders", 1).schema.schema_str
    assert client.get_latest_version("orders").version == 2
    assert client.lookup_schema("orders", Schema(ORDER, "AVRO")).schema_id == 1
    assert client.get_subjects_by_schema_id(1) == ["orders"]
    assert [(one.subject, one.version) for one in client.get_schema_versions(1)] == [("orders", 1)]
    assert "AVRO" in client.get_schema_types()
    assert client.get_contexts() == ["."]
    reference = SchemaReference("Order", "orders", 1)
    items = '{"type": "array", "items": "Order"}'
    basket = f'{{"type": "record", "name": "Basket", "fields": [{{"name": "orders", "type": {items}}}]}}'
    assert client.register_schema("baskets", Schema(basket, "AVRO", [reference])) == 3
    assert client.get_referenced_by("orders", 1) == [3]
    assert client.set_compatibility("baskets", "FULL")["compatibility"] == "FULL"
    assert client.get_compatibility("baskets") == "FULL"
    assert client.update_mode("baskets", "READONLY") == "READONLY"
    assert client.get_mode("baskets") == "READONLY"
    assert client.delete_mode("baskets") == "READONLY"
    assert client.delete_version("baskets", 1) == 1
    assert client.delete_subject("orders") == [1, 2]
    assert client.delete_subject("orders", permanent=True) == [1, 2]


def test_its_errors_are_understood(client: Any) -> None:
    client.register_schema("orders", Schema(ORDER, "AVRO"))
    for work, status, code in (
        (lambda: client.get_latest_version("nobody"), 404, 40401),
        (lambda: client.register_schema("orders", Schema('"int"', "AVRO")), 409, 409),
        (lambda: client.register_schema("orders", Schema("{", "AVRO")), 422, 42201),
    ):
        with pytest.raises(SchemaRegistryError) as refused:
            work()
        assert (refused.value.http_status_code, refused.value.error_code) == (status, code)
