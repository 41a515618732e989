"""TLS of one listener, without sockets: handshakes in memory against Python's own client."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from kit.certificates import HOSTS, Certificates, certificates

from ottla.broker.principal import ANONYMOUS
from ottla.broker.security.tls.listener import ListenerTls
from ottla.broker.security.tls.listeners import TlsListeners
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError


@pytest.fixture(scope="module")
def pki() -> Certificates:
    return certificates()


def config_with(pki: Certificates, keys: Mapping[str, object] | None = None, *, protocol: str = "SSL") -> BrokerConfig:
    return BrokerConfig.of({"listeners": f"{protocol}://:9093", **pki.server_overrides(), **(keys or {})})


def shake_hands(
    listener: ListenerTls, client_context: ssl.SSLContext, *, name: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """The server's and the client's side after a handshake. Raises ssl.SSLError of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listener.context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    open_sides = [client, server]
    for _ in range(10):
        for side in list(open_sides):
            try:
                side.do_handshake()
                open_sides.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not open_sides:
            return server, client
    raise AssertionError("the handshake does not end")


def shown_name(pki: Certificates, listener: ListenerTls, name: str = "localhost") -> str:
    """The common name of the certificate that a client gets."""
    context = pki.client_context()
    context.check_hostname = False
    _, client = shake_hands(listener, context, name=name)
    certificate = client.getpeercert()
    assert certificate is not None
    return dict(part[0] for part in certificate["subject"])["commonName"]  # type: ignore[misc]


def test_a_certificate_says_who_the_client_is(pki: Certificates) -> None:
    listener = ListenerTls(config_with(pki, {"ssl.client.auth": "required"}), "SSL")
    server, _ = shake_hands(listener, pki.client_context(pki.client("alice")))
    principal = listener.principal_of(server.getpeercert(binary_form=True))
    assert str(principal) == "User:CN=alice,OU=clients,O=Ottla"


def test_rules_make_a_name_of_it(pki: Certificates) -> None:
    keys = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U, DEFAULT"}
    listener = ListenerTls(config_with(pki, keys), "SSL")
    server, _ = shake_hands(listener, pki.client_context(pki.client("alice")))
    assert str(listener.principal_of(server.getpeercert(binary_form=True))) == "User:ALICE"


def test_rules_that_cannot_be_used_refuse_the_start(pki: Certificates) -> None:
    config = config_with(pki, {"listener.name.ssl.ssl.principal.mapping.rules": "NOPE"})
    with pytest.raises(ConfigError, match=r"^listener.name.ssl.ssl.principal.mapping.rules=NOPE: 'NOPE' is neither"):
        ListenerTls(config, "SSL")


@pytest.mark.parametrize("auth", ["none", "requested"])
def test_without_a_certificate_a_client_is_anonymous(pki: Certificates, auth: str) -> None:
    listener = ListenerTls(config_with(pki, {"ssl.client.auth": auth}), "SSL")
    server, _ = shake_hands(listener, pki.client_context())
    assert listener.principal_of(server.getpeercert(binary_form=True)) is ANONYMOUS


def test_required_refuses_a_client_without_a_certificate(pki: Certificates) -> None:
    listener = ListenerTls(config_with(pki, {"ssl.client.auth": "required"}), "SSL")
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(listener, pki.client_context())


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_certificate_that_is_shown_is_checked(pki: Certificates, auth: str) -> None:
    listener = ListenerTls(config_with(pki, {"ssl.client.auth": auth}), "SSL")
    for files, reason in ((pki.expired_client(), "certificate has expired"), (pki.foreign_client(), "local issuer")):
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            shake_hands(listener, pki.client_context(files))


def test_a_clients_own_certificate_may_be_what_is_trusted(pki: Certificates) -> None:
    """As in Java: the trust store holds whom to trust, be it at the end of a chain or not."""
    keys = {"ssl.client.auth": "required", "ssl.truststore.location": pki.client("alice").chain}
    listener = ListenerTls(config_with(pki, keys), "SSL")
    shake_hands(listener, pki.client_context(pki.client("alice")))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(listener, pki.client_context(pki.client("bob")))


def test_with_sasl_only_a_key_of_the_listener_asks_for_certificates(pki: Certificates) -> None:
    """KIP-684; and there the login says who it is."""
    sasl = {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "ssl.client.auth": "required"}
    listener = ListenerTls(config_with(pki, sasl, protocol="SASL_SSL"), "SASL_SSL")
    shake_hands(listener, pki.client_context())
    sasl["listener.name.sasl_ssl.ssl.client.auth"] = "required"
    listener = ListenerTls(config_with(pki, sasl, protocol="SASL_SSL"), "SASL_SSL")
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(listener, pki.client_context())
    server, _ = shake_hands(listener, pki.client_context(pki.client("alice")))
    assert listener.principal_of(server.getpeercert(binary_form=True)) is ANONYMOUS


@pytest.mark.parametrize(("enabled", "spoken"), [("TLSv1.2", "TLSv1.2"), ("TLSv1.3", "TLSv1.3"), ("", "TLSv1.3")])
def test_the_newest_version_that_is_enabled_is_spoken(pki: Certificates, enabled: str, spoken: str) -> None:
    listener = ListenerTls(config_with(pki, {"ssl.enabled.protocols": enabled}), "SSL")
    server, _ = shake_hands(listener, pki.client_context())
    assert server.version() == spoken


def test_an_older_version_is_refused(pki: Certificates) -> None:
    listener = ListenerTls(config_with(pki, {"ssl.enabled.protocols": "TLSv1.3"}), "SSL")
    context = pki.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(listener, context)


def test_a_cipher_suite_by_javas_name_is_the_one_that_is_used(pki: Certificates) -> None:
    keys = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    server, _ = shake_hands(ListenerTls(config_with(pki, keys), "SSL"), pki.client_context())
    assert server.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


def test_there_is_no_compression_and_nothing_is_resumed(pki: Certificates) -> None:
    listener = ListenerTls(config_with(pki), "SSL")
    context = pki.client_context()
    server, client = shake_hands(listener, context)
    assert server.compression() is None
    assert listener.context.options & ssl.OP_NO_RENEGOTIATION
    server.write(b"x")
    assert client.read() == b"x"
    assert client.session is None or not client.session.has_ticket


# -- several certificates ---------------------------------------------------------------------------------------------


def test_the_name_that_a_client_asks_for_chooses_the_certificate(pki: Certificates, tmp_path: Path) -> None:
    inner = pki.server_for("inner", ("inner.example", "*.inner.example"))
    store = tmp_path / "store.pem"
    store.write_bytes(pki.server.store.read_bytes() + inner.store.read_bytes())
    listener = ListenerTls(config_with(pki, {"ssl.keystore.location": store}), "SSL")
    asked = ("inner.example", "b1.INNER.example", "localhost", "other.example")
    assert [shown_name(pki, listener, name) for name in asked] == ["inner", "inner", "server", "server"]


# -- changes while it runs --------------------------------------------------------------------------------------------


def touch(path: Path, content: bytes) -> None:
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 1_000, before + 1_000))  # a clock may stand still between two writes


def test_a_changed_file_is_what_new_connections_get(
    pki: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(pki.server.store.read_bytes())
    listeners = TlsListeners(config_with(pki, {"ssl.keystore.location": store}))
    listeners.open()
    listener = listeners.by_name["SSL"]
    before = listener.context
    assert listeners.look_at_files() is False
    assert listener.context is before
    touch(store, pki.server_for("renewed", HOSTS).store.read_bytes())
    listeners.look_at_files()
    assert shown_name(pki, listener) == "renewed"
    with caplog.at_level(logging.INFO, "ottla.tls"):
        touch(store, b"rubbish")
        listeners.look_at_files()
        listeners.look_at_files()
    assert shown_name(pki, listener) == "renewed"
    (line,) = caplog.messages
    assert line.startswith(
        "listener SSL: what has changed cannot be used, the certificate stays: ssl.keystore.location"
    )
    touch(store, pki.server.store.read_bytes())
    listeners.look_at_files()
    assert shown_name(pki, listener) == "server"


def test_a_file_that_is_gone_for_a_moment_is_taken_when_it_is_back(pki: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(pki.server.store.read_bytes())
    listeners = TlsListeners(config_with(pki, {"ssl.keystore.location": store}))
    listeners.open()
    store.unlink()
    listeners.look_at_files()
    assert shown_name(pki, listeners.by_name["SSL"]) == "server"
    store.write_bytes(pki.server_for("renewed", HOSTS).store.read_bytes())
    listeners.look_at_files()
    assert shown_name(pki, listeners.by_name["SSL"]) == "renewed"


def test_who_is_not_trusted_any_more_does_not_get_in(pki: Certificates, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(pki.ca.read_bytes())
    config = config_with(pki, {"ssl.truststore.location": trusted, "ssl.client.auth": "required"})
    listeners = TlsListeners(config)
    listeners.open()
    context = pki.client_context(pki.client("alice"))
    shake_hands(listeners.by_name["SSL"], context)
    touch(trusted, pki.client("bob").chain.read_bytes())
    listeners.look_at_files()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(listeners.by_name["SSL"], context)


def test_keys_that_a_client_sets_are_checked_before_and_taken_after(pki: Certificates) -> None:
    config = config_with(pki)
    listeners = TlsListeners(config)
    listeners.open()
    key = "listener.name.ssl.ssl.keystore.location"
    good = {key: str(pki.server_for("renewed", HOSTS).store)}
    listeners.check(config.overrides_in(good))
    with pytest.raises(ConfigError, match=f"^{key}=/nowhere: cannot be read"):
        listeners.check(config.overrides_in({key: "/nowhere"}))
    assert shown_name(pki, listeners.by_name["SSL"]) == "server"
    config.set_dynamic(node=good, all_nodes={})
    listeners.on_configuration()
    assert shown_name(pki, listeners.by_name["SSL"]) == "renewed"
    config.set_dynamic(node={}, all_nodes={})
    listeners.on_configuration()
    assert shown_name(pki, listeners.by_name["SSL"]) == "server"
