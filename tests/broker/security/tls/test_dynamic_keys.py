"""Keys of a TLS listener that a client sets while the broker runs: what is taken, refused and shown."""

from __future__ import annotations

import pytest
from kit.certificates import HOSTS, Certificates, certificates
from kit.nodes import start_node
from kit.settings import BROKER, DELETE, SET, alter

from ottla.broker.node import Node
from ottla.protocol.errors import ErrorCode

LOCATION = "listener.name.ssl.ssl.keystore.location"
PASSWORD = "listener.name.ssl.ssl.key.password"


@pytest.fixture
def pki() -> Certificates:
    return certificates()


def node_with(pki: Certificates, **keys: object) -> Node:
    overrides = {key.replace(".", "_"): value for key, value in pki.server_overrides().items()}
    node, _, _ = start_node(listeners="SSL://127.0.0.1:9093", **overrides, **keys)
    node.tls.open()
    return node


def test_a_good_certificate_is_what_the_next_connection_gets(pki: Certificates) -> None:
    node = node_with(pki)
    before = node.tls.by_name["SSL"].context
    assert alter(node, BROKER, "1", (LOCATION, SET, str(pki.server_for("renewed", HOSTS).store)))[0] == ErrorCode.NONE
    after = node.tls.by_name["SSL"].context
    assert after is not before
    assert alter(node, BROKER, "1", (LOCATION, DELETE, None))[0] == ErrorCode.NONE
    assert node.tls.by_name["SSL"].context is not after


def test_a_bad_one_is_refused_and_the_old_one_stays(pki: Certificates) -> None:
    node = node_with(pki)
    before = node.tls.by_name["SSL"].context
    code, message = alter(node, BROKER, "1", (LOCATION, SET, "/nowhere"))
    assert code == ErrorCode.INVALID_REQUEST
    assert message == f"Invalid value /nowhere for configuration {LOCATION}: cannot be read: No such file or directory"
    assert node.tls.by_name["SSL"].context is before


def test_only_looking_changes_nothing(pki: Certificates) -> None:
    node = node_with(pki)
    before = node.tls.by_name["SSL"].context
    good = str(pki.server_for("renewed", HOSTS).store)
    assert alter(node, BROKER, "1", (LOCATION, SET, good), validate_only=True)[0] == ErrorCode.NONE
    assert alter(node, BROKER, "1", (LOCATION, SET, "/x"), validate_only=True)[0] == ErrorCode.INVALID_REQUEST
    assert node.tls.by_name["SSL"].context is before


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        (
            "",
            LOCATION,
            "Cannot update these configs at default cluster level, broker id must be specified: Set(listener",
        ),
        ("1", "ssl.keystore.location", "These security configs can be dynamically updated only per-listener using the"),
        (
            "1",
            "listener.name.ssl.ssl.client.auth",
            "Cannot update these configs dynamically: Set(listener.name.ssl.ssl.",
        ),
        (
            "1",
            "listener.name.other.ssl.keystore.location",
            "Cannot update these configs dynamically: Set(listener.name",
        ),
    ],
)
def test_what_cannot_change_is_refused(pki: Certificates, name: str, key: str, message: str) -> None:
    code, said = alter(node_with(pki), BROKER, name, (key, SET, "x"))
    assert code == ErrorCode.INVALID_REQUEST
    assert said is not None
    assert said.startswith(message)


def test_a_password_is_never_shown(pki: Certificates) -> None:
    store = str(pki.encrypted("geheim").store)
    node = node_with(pki)
    code, said = alter(node, BROKER, "1", (LOCATION, SET, store), (PASSWORD, SET, "falsch"))
    assert code == ErrorCode.INVALID_REQUEST
    assert said is not None
    assert "falsch" not in said
    assert f"{PASSWORD}: does not open the private key" in said
    assert alter(node, BROKER, "1", (LOCATION, SET, store), (PASSWORD, SET, "geheim"))[0] == ErrorCode.NONE
    entries = {entry.name: entry for entry in node.services.config.describe()}
    assert entries[LOCATION].value == store
    assert entries[LOCATION].synonyms[0].source.name == "DYNAMIC_BROKER_CONFIG"
    assert entries[PASSWORD].is_sensitive
    assert entries[PASSWORD].value is None
    assert "geheim" not in repr(entries)


def test_a_listeners_own_key_is_described_with_what_it_stands_for(pki: Certificates) -> None:
    own = {"listener_name_ssl_ssl_keystore_location": str(pki.server_for("own", HOSTS).store)}
    node = node_with(pki, **own)
    (entry,) = node.services.config.describe([LOCATION])
    assert [one.name for one in entry.synonyms] == [LOCATION, "ssl.keystore.location"]
    assert entry.read_only is False
