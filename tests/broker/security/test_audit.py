"""The audit log: what is in it, where it goes, what is left out of it; on a node with a manual clock."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, pass_time, start_node
from kit.sasl_connections import SaslNode

from ottla.broker.context import Context
from ottla.broker.http.operations import operations_of
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.broker.runtime.timers import AGAIN_MS
from ottla.broker.security.audit import FLUSH_MS, MAX_WAITING, MOST_CHARACTERS
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.api.update_features import UpdateFeaturesRequest
from ottla.protocol.message import Request
from ottla.storage.formats.kafka_uuid import uuid_to_text

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def audited(path: Path, **keys: object) -> tuple[Node, ManualClock]:
    node, _, clock = start_node(ottla_acks_all="page-cache", ottla_audit_log=str(path), **keys)
    return node, clock


def flush(node: Node, clock: ManualClock) -> None:
    pass_time(node, clock, FLUSH_MS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def test_administration_is_written_with_who_from_where_and_on_what(path: Path) -> None:
    node, clock = audited(path)
    make_topic(node, "orders")
    client = Exchange(node)
    client.connection.peer.principal = Principal("User", "alice")
    client.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1_000), 5)
    flush(node, clock)
    (line,) = lines(path)
    assert line == {
        "time": "2023-11-14T22:13:20.000Z",
        "event": "request",
        "outcome": "answered",
        "principal": "User:alice",
        "host": "192.0.2.7",
        "port": 4242,
        "listener": "PLAINTEXT",
        "client_id": "test",
        "api": "DeleteTopics",
        "resources": ["orders"],
    }
    assert path.stat().st_mode & 0o007 == 0, "not for everybody on the machine"


@pytest.mark.parametrize(("allowed", "outcomes"), [("false", ["denied"]), ("true", ["allowed", "denied"])])
def test_what_is_denied_is_written_and_what_is_allowed_where_it_is_asked_for(
    path: Path, allowed: str, outcomes: list[str]
) -> None:
    node, clock = audited(path, authorizer_class_name=STANDARD, super_users="User:root", ottla_audit_allowed=allowed)
    make_topic(node, "orders")
    root, nobody = Exchange(node), Exchange(node)
    root.connection.peer.principal = Principal("User", "root")
    for client in (root, nobody):
        context = Context(node.services, 0, 9, client_id="test", connection=client.connection.peer)
        context.may(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    flush(node, clock)
    written = lines(path)
    assert [line["outcome"] for line in written] == outcomes
    assert written[-1]["principal"] == "User:ANONYMOUS"
    what = ("event", "api", "operation", "resource_type", "resource")
    assert [written[-1][key] for key in what] == ["authorization", "Produce", "WRITE", "TOPIC", "orders"]


def test_what_a_list_leaves_out_is_not_written(path: Path) -> None:
    node, clock = audited(path, authorizer_class_name=STANDARD)
    make_topic(node, "orders")
    Exchange(node).ask(MetadataRequest(topics=None), 9)
    flush(node, clock)
    assert [line for line in lines(path) if line["event"] == "authorization"] == []


def test_who_is_throttled_and_who_is_refused_is_written(path: Path) -> None:
    node, clock = audited(path, max_connections=2)
    make_topic(node, "t")
    client = Exchange(node)
    client.ask(
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequest.EntryData(
                    entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=None)],
                    ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1_000.0, remove=False)],
                )
            ],
            validate_only=False,
        ),
        1,
    )
    answer: Any = client.ask(produce_request("t", batch(value=b"x" * 20_000)), 9)
    Exchange(node, client)
    Exchange(node, client)
    flush(node, clock)
    changed, throttled, refused = lines(path)
    assert (changed["api"], changed["resources"]) == ("AlterClientQuotas", ["user=<default>"])
    assert (throttled["event"], throttled["outcome"]) == ("quota", "throttled")
    assert throttled["throttle_ms"] == answer.throttle_time_ms
    assert (refused["event"], refused["outcome"]) == ("connection", "refused")
    assert "max.connections=2" in refused["error"]


def test_authentication_is_written(path: Path) -> None:
    node, clock = audited(path)
    audit = node.services.audit
    assert audit is not None
    audit.authentication(Peer(principal=Principal("User", "alice")), "PLAIN")
    audit.authentication(Peer(), "PLAIN", error="wrong password", name="ali\nce" + "x" * 1_000)
    flush(node, clock)
    good, bad = lines(path)
    assert (good["outcome"], good["principal"], good["mechanism"]) == ("succeeded", "User:alice", "PLAIN")
    assert (bad["outcome"], bad["error"], len(bad["name"])) == ("failed", "wrong password", MOST_CHARACTERS)


def test_logins_are_written_without_what_was_sent(path: Path) -> None:
    at = SaslNode(ottla_audit_log=str(path))
    at.connect().log_in()
    client = at.connect()
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"), 2)
    at.pass_time(100)
    at.node.stop()
    logins = [line for line in lines(path) if line["event"] == "authentication"]
    assert [(line["outcome"], line["principal"], line["mechanism"]) for line in logins] == [
        ("succeeded", "User:alice", "PLAIN"),
        ("failed", "User:ANONYMOUS", "PLAIN"),
    ]
    assert "hunter2" not in path.read_text()


@pytest.mark.parametrize(
    ("mechanism", "named", "name"),
    [
        ("PLAIN", "alice", "alice"),
        ("PLAIN", "hunter2", None),
        ("SCRAM-SHA-256", "carol", "carol"),
        ("SCRAM-SHA-256", "hunter2", None),
    ],
)
def test_a_failed_login_is_written_with_the_user_that_exists_and_not_with_another_name(
    path: Path, mechanism: str, named: str, name: str | None
) -> None:
    at = SaslNode(ottla_audit_log=str(path))
    client = at.connect()
    client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    last = f"\0{named}\0wrong".encode()
    if mechanism != "PLAIN":
        first: Any = client.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={named},r=abc".encode()), 2)
        nonce = bytes(first.auth_bytes).split(b",")[0]
        last = b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32))
    client.send_request(SaslAuthenticateRequest(auth_bytes=last), 2)
    at.pass_time(100)
    at.node.stop()
    (failed,) = [line for line in lines(path) if line["event"] == "authentication"]
    assert (failed["outcome"], failed.get("name")) == ("failed", name)
    assert "hunter2" not in path.read_text()


def test_operations_over_http_are_written(path: Path) -> None:
    node, clock = audited(path)
    make_topic(node, "orders")
    operations_of(node.services, node.cleaner)["/log/roll"]({"partition": "orders-0"})
    flush(node, clock)
    (line,) = lines(path)
    assert (line["listener"], line["api"], line["resources"]) == ("HTTP", "/log/roll", ["orders-0"])


def test_a_file_that_was_moved_away_is_made_again(path: Path) -> None:
    node, clock = audited(path)
    audit = node.services.audit
    assert audit is not None
    for name in ("first", "second"):
        audit.note("test", name, Peer())
        flush(node, clock)
        os.rename(path, path.with_name(name))
    for name in ("first", "second"):
        assert [line["outcome"] for line in lines(path.with_name(name))] == [name]


def test_more_than_the_rate_is_left_out_and_counted(path: Path) -> None:
    node, clock = audited(path, ottla_audit_max_per_second=40)
    audit = node.services.audit
    assert audit is not None
    for _ in range(50):
        audit.note("test", "noisy", Peer(host="192.0.2.1"))
    audit.note("test", "quiet", Peer(host="192.0.2.2"))
    flush(node, clock)
    written = lines(path)
    assert [line.get("outcome") for line in written].count("noisy") == 10, "a quarter is for one address"
    assert written[-2]["event"] == "dropped"
    assert written[-2]["count"] == 40
    assert written[-1]["outcome"] == "quiet"
    clock.advance(1_000)
    audit.note("test", "later", Peer(host="192.0.2.1"))
    flush(node, clock)
    assert lines(path)[-1]["outcome"] == "later"
    assert audit.dropped == 40


def test_a_disk_that_takes_nothing_loses_events_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node, clock = audited(tmp_path / "missing" / "audit.log")
    audit = node.services.audit
    assert audit is not None
    audit.note("test", "lost", Peer())
    flush(node, clock)
    assert "1 events could not be written" in caplog.text
    (tmp_path / "missing").mkdir()
    audit.note("test", "kept", Peer())
    flush(node, clock)
    assert [line["event"] for line in lines(tmp_path / "missing" / "audit.log")] == ["dropped", "test"]


def test_events_for_which_there_was_no_memory_are_written_a_second_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event waits for the flush before it: one that is lost would end the audit log until the next start."""
    node, clock = audited(path)
    make_topic(node, "orders")
    run, errors = node.services.workers.run, [MemoryError()]

    def fails_first(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        run(*arguments)

    Exchange(node).ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1_000), 5)
    monkeypatch.setattr(node.services.workers, "run", fails_first)
    with pytest.raises(MemoryError):
        flush(node, clock)
    assert lines(path) == []
    pass_time(node, clock, AGAIN_MS + FLUSH_MS)
    assert [line["api"] for line in lines(path)] == ["DeleteTopics"]


def _acl(name: str, pattern: PatternType, host: str, permission: PermissionType) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:bob",
        host=host,
        operation=AclOperation.READ,
        permission_type=permission,
    )


_ID = UUID("5fb3d0ac-9a3c-4b3b-8f4e-6d6d8f6f2a11")


@pytest.mark.parametrize(
    ("request_", "version", "resources"),
    [
        (
            CreateAclsRequest(
                creations=[
                    _acl("orders", PatternType.LITERAL, "*", PermissionType.ALLOW),
                    _acl("app-", PatternType.PREFIXED, "10.0.0.7", PermissionType.DENY),
                ]
            ),
            3,
            ["ALLOW User:bob READ TOPIC orders", "DENY User:bob from 10.0.0.7 READ TOPIC app- PREFIXED"],
        ),
        (
            DeleteAclsRequest(
                filters=[
                    DeleteAclsRequest.DeleteAclsFilter(
                        resource_type_filter=ResourceType.TOPIC,
                        resource_name_filter="orders",
                        pattern_type_filter=PatternType.ANY,
                        principal_filter=None,
                        host_filter=None,
                        operation=AclOperation.ANY,
                        permission_type=PermissionType.ANY,
                    )
                ]
            ),
            3,
            ["ANY ANY ANY TOPIC orders ANY"],
        ),
        (
            UpdateFeaturesRequest(
                feature_updates=[UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)]
            ),
            1,
            ["group.version"],
        ),
        (
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=_ID)], timeout_ms=1),
            6,
            [uuid_to_text(_ID)],
        ),
    ],
    ids=lambda value: type(value).__name__.removesuffix("Request") if isinstance(value, Request) else "",
)
def test_a_line_names_what_a_request_is_about(
    path: Path, request_: Request, version: int, resources: list[str]
) -> None:
    node, clock = audited(path, authorizer_class_name=STANDARD, super_users="User:root")
    client = Exchange(node)
    client.connection.peer.principal = Principal("User", "root")
    client.ask(request_, version)
    flush(node, clock)
    (line,) = [line for line in lines(path) if line["event"] == "request"]
    assert line["resources"] == resources


def test_a_new_delegation_token_is_written_with_its_owner_and_its_id(path: Path) -> None:
    at = SaslNode(ottla_audit_log=str(path), delegation_token_secret_key="k")
    client = at.connect()
    client.log_in()
    answer: Any = client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    at.node.stop()
    (line,) = [line for line in lines(path) if line["event"] == "request"]
    assert (line["api"], line["resources"]) == ("CreateDelegationToken", ["User:alice", answer.token_id])


def test_what_waits_is_bounded(path: Path) -> None:
    node, _ = audited(path, ottla_audit_max_per_second=1_000_000)
    audit = node.services.audit
    assert audit is not None
    for number in range(MAX_WAITING + 10):
        audit.note("test", "x", Peer(host=f"host-{number}"))
    assert audit.dropped == 10


def test_a_stop_writes_what_waits(path: Path) -> None:
    node, _ = audited(path)
    assert node.services.audit is not None
    node.services.audit.note("test", "last", Peer())
    node.stop()
    assert [line["outcome"] for line in lines(path)] == ["last"]


def test_a_topic_is_made_and_has_a_record_for_each_event() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache", ottla_audit_log="topic:audit")
    audit = node.services.audit
    assert audit is not None
    for outcome in ("one", "two"):
        audit.note("test", outcome, Peer())
        flush(node, clock)
    log = partition_of(node, "audit").log
    assert log.log_end_offset == 2
    answer: Any = Exchange(node).ask(fetch_request("audit", 0), 12)
    records = bytes(answer.responses[0].partitions[0].records)
    assert records.index(b'"outcome": "one"') < records.index(b'"outcome": "two"')
    audit.note("test", "three", Peer())
    node.quiesce()
    assert log.log_end_offset == 3


def test_without_the_key_there_is_none() -> None:
    node, _, _ = start_node()
    assert node.services.audit is None


@pytest.mark.parametrize("target", ["topic:", "topic:__consumer_offsets", "topic:a b"])
def test_a_topic_that_cannot_be_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.audit\.log"):
        BrokerConfig.of({"ottla.audit.log": target})
