"""The registry and its topic: restarts, a second registry, a topic that is not as it should be."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from kit.registry_api import RegistryApi, body_of

from ottla.registry.records import AVRO, PROTOBUF, Content, SchemaKey, Stored, schema_value
from ottla.testing import EmbeddedBroker
from ottla.testing.registry_thread import SchemaRegistry

INT = '"int"'


def test_the_topic_is_compacted_and_has_one_partition(api: RegistryApi, broker: EmbeddedBroker, topic: str) -> None:
    api.register("a", INT)
    from ottla.client import ConfigResource

    (described,) = broker.admin.describe_topics([topic]).values()
    assert len(described.partitions) == 1
    resource = ConfigResource.topic(topic)
    assert broker.admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"


def test_another_registry_continues(broker: EmbeddedBroker, topic: str) -> None:
    with broker.schema_registry(topic) as first:
        RegistryApi(first.url).register("a", INT)
    with broker.schema_registry(topic) as second:
        api = RegistryApi(second.url)
        assert api.get("/subjects/a/versions/1")["id"] == 1
        assert api.register("a", '"long"') == 2


def test_records_of_another_registry_are_seen(api: RegistryApi, broker: EmbeddedBroker, topic: str) -> None:
    api.register("a", INT)
    other = Stored("b", 1, 9, Content(AVRO, '"string"'))
    broker.send(topic, schema_value(other), key=SchemaKey("b", 1).to_bytes())
    assert api.register("b", '"string"') == 9
    assert api.register("c", '"bytes"') == 10


def test_protobuf_that_another_registry_has_stored_is_the_same_schema(
    api: RegistryApi, broker: EmbeddedBroker, topic: str
) -> None:
    """Confluent's prints it in a way of its own."""
    assert api.get("/subjects") == []  # it has made the topic
    other = Stored("a", 1, 9, Content(PROTOBUF, '// theirs\nsyntax = "proto3";\n\nmessage A {int32 a = 1;}'))
    broker.send(topic, schema_value(other), key=SchemaKey("a", 1).to_bytes())
    assert api.register("a", 'syntax = "proto3"; message A { int32 a = 1; }', schemaType="PROTOBUF") == 9
    assert api.get("/subjects/a/versions") == [1]
    serialized = base64.b64decode(api.get("/schemas/ids/9?format=serialized")["schema"])
    assert FileDescriptorProto.FromString(serialized).message_type[0].field[0].name == "a"


def test_two_registries_give_each_id_once(broker: EmbeddedBroker, topic: str) -> None:
    """Both register different schemas in the same subjects at the same time."""
    with broker.schema_registry(topic) as first, broker.schema_registry(topic) as second:
        apis = [RegistryApi(first.url), RegistryApi(second.url)]
        apis[0].do("PUT", "/config", {"compatibility": "NONE"})

        def work(index: int) -> list[tuple[int, str]]:
            found = []
            for number in range(15):
                schema = json.dumps(
                    {"type": "fixed", "name": "F", "size": 1 + number * 2 + index}, separators=(",", ":")
                )
                found.append((apis[index].register(f"subject-{number % 2}", schema), schema))
            return found

        with ThreadPoolExecutor(2) as threads:
            given = [one for some in threads.map(work, (0, 1)) for one in some]
        # An id whose record has lost is not given again, so some may be missing.
        assert len({schema_id for schema_id, _ in given}) == len(given) == 30
        for api in apis:
            api.do("PUT", "/config", {"compatibility": "NONE"})  # both have then read the topic to its end
            for schema_id, schema in given:
                assert api.get(f"/schemas/ids/{schema_id}")["schema"] == schema
    with broker.schema_registry(topic) as third:  # and so has one that reads the log later
        for schema_id, schema in given:
            assert RegistryApi(third.url).get(f"/schemas/ids/{schema_id}")["schema"] == schema


def test_a_broker_that_starts_again() -> None:
    with EmbeddedBroker() as broker, broker.schema_registry() as registry:
        api = RegistryApi(registry.url)
        api.register("a", INT)
        broker.restart()
        assert api.get("/schemas/ids/1") == {"schema": INT}
        assert api.register("a", '"long"') == 2


def test_a_topic_that_is_not_compacted_is_refused(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic(topic, configs={"cleanup.policy": "delete"})
    with broker.schema_registry(topic, timeout_s=1) as registry:
        status, code, message = RegistryApi(registry.url).refused("GET", "/subjects")
        assert (status, code) == (500, 50001)
        assert f"`ottla configs alter --topic {topic} --set cleanup.policy=compact` changes that" in message
    assert len(caplog.records) == 1


def test_without_a_broker_requests_are_refused_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with SchemaRegistry("127.0.0.1:1", {}, "_schemas", timeout_s=1) as registry:
        api = RegistryApi(registry.url)
        for method, path, body in (("GET", "/subjects", None), ("POST", "/subjects/a/versions", body_of(INT))):
            status, code, message = api.refused(method, path, body)
            assert (status, code, "no broker answers" in message) == (500, 50001, True)
    (line,) = caplog.messages  # once, for the person who has started it
    assert line.startswith("_schemas cannot be read yet: no broker answers: cannot connect to 127.0.0.1:1")


def test_a_registry_that_does_not_run_has_no_url(broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.schema_registry().url
