"""Key stores and trust stores: each form that is read, and what is said of the others."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from kit.certificates import Certificates, certificates

from ottla.broker.security.tls.context import make_context
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError


@pytest.fixture(scope="module")
def pki() -> Certificates:
    return certificates()


def make(**keys: object) -> None:
    """Read the stores, and give them to OpenSSL. Raises ConfigError."""
    config = BrokerConfig.of({"listeners": "SSL://:9093", **{key.replace("_", "."): keys[key] for key in keys}})
    make_context(config.on_listener("SSL"), lambda key, reason: config.wrong_on_listener("SSL", key, reason))


def refused(**keys: object) -> str:
    with pytest.raises(ConfigError) as caught:
        make(**keys)
    return str(caught.value)


def pem(files: Any) -> tuple[str, str]:
    return files.key.read_text(), files.chain.read_text()


def on_one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def test_pem_is_read_from_a_file(pki: Certificates) -> None:
    make(ssl_keystore_type="PEM", ssl_keystore_location=pki.server.store)


def test_pem_is_read_from_the_configuration(pki: Certificates) -> None:
    key, chain = pem(pki.server)
    make(ssl_keystore_type="PEM", ssl_keystore_key=key, ssl_keystore_certificate_chain=chain)


def test_pem_may_be_on_one_line_with_anything_in_front(pki: Certificates) -> None:
    key, chain = pem(pki.server)
    trusted = "subject=/CN=x " + on_one_line(pki.ca.read_text())
    make(
        ssl_keystore_type="PEM",
        ssl_keystore_key=on_one_line(key),
        ssl_keystore_certificate_chain="Bag Attributes " + on_one_line(chain),
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=trusted,
    )


def test_the_certificate_may_stand_before_its_key(pki: Certificates, tmp_path: Path) -> None:
    key, chain = pem(pki.server)
    (tmp_path / "store.pem").write_text(chain + key)
    make(ssl_keystore_type="PEM", ssl_keystore_location=tmp_path / "store.pem")


def test_an_encrypted_key_is_opened_by_its_password(pki: Certificates) -> None:
    store = pki.encrypted("geheim").store
    make(ssl_keystore_type="PEM", ssl_keystore_location=store, ssl_key_password="geheim")
    line = refused(ssl_keystore_type="PEM", ssl_keystore_location=store)
    assert line.startswith("ssl.key.password: must be set: the private key of ssl.keystore.location is encrypted")
    line = refused(ssl_keystore_type="PEM", ssl_keystore_location=store, ssl_key_password="wrong-one")
    assert line.startswith("ssl.key.password=[hidden]: does not open the private key of ssl.keystore.location")
    assert "wrong-one" not in line


def test_a_key_that_was_encrypted_in_the_old_way_needs_its_password_too(pki: Certificates, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(pki.server.key.read_bytes(), None)
    old = serialization.PrivateFormat.TraditionalOpenSSL
    text = key.private_bytes(serialization.Encoding.PEM, old, serialization.BestAvailableEncryption(b"geheim"))
    store = tmp_path / "store.pem"
    store.write_bytes(text + pki.server.chain.read_bytes())
    make(ssl_keystore_type="PEM", ssl_keystore_location=store, ssl_key_password="geheim")
    line = refused(ssl_keystore_type="PEM", ssl_keystore_location=store)
    assert line.startswith("ssl.key.password: must be set: the private key of ssl.keystore.location is encrypted")


def pkcs12_of(pki: Certificates, path: Path, password: str = "geheim") -> Path:
    key = serialization.load_pem_private_key(pki.server.key.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(pki.server.chain.read_bytes())
    authority = x509.load_pem_x509_certificate(pki.ca.read_bytes())
    algorithm = serialization.BestAvailableEncryption(password.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"kafka", key, certificate, [authority], algorithm))  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_whatever_java_calls_it(pki: Certificates, tmp_path: Path, kind: str) -> None:
    store = pkcs12_of(pki, tmp_path / "store.p12")
    make(
        ssl_keystore_type=kind,
        ssl_keystore_location=store,
        ssl_keystore_password="geheim",
        ssl_truststore_type=kind,
        ssl_truststore_location=store,
        ssl_truststore_password="geheim",
        ssl_client_auth="required",
    )


def test_a_wrong_password_of_a_pkcs12_file_is_said_without_it(pki: Certificates, tmp_path: Path) -> None:
    store = pkcs12_of(pki, tmp_path / "store.p12")
    line = refused(ssl_keystore_type="PKCS12", ssl_keystore_location=store, ssl_keystore_password="verkehrt")
    assert "cannot be opened: no PKCS12 file, or a wrong ssl.keystore.password (--override)" in line
    assert "verkehrt" not in line


def test_without_cryptography_pkcs12_says_what_to_install(
    pki: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = pkcs12_of(pki, tmp_path / "store.p12")
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    line = refused(ssl_keystore_type="PKCS12", ssl_keystore_location=store, ssl_keystore_password="geheim")
    assert line.startswith(
        "ssl.keystore.type=PKCS12: PKCS12 needs the package cryptography: `pip install 'ottla[security]'`, or use PEM"
    )


def test_a_file_of_javas_own_form_is_refused_with_what_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "broker.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    line = refused(ssl_keystore_location=store, ssl_keystore_password="geheim")
    target = tmp_path / "broker.p12"
    assert f"`keytool -importkeystore -srckeystore {store} -destkeystore {target} -deststoretype PKCS12`" in line
    assert "set ssl.keystore.type=PKCS12" in line


def test_a_type_that_is_not_the_files_is_refused(pki: Certificates, tmp_path: Path) -> None:
    line = refused(ssl_keystore_location=pki.server.store, ssl_keystore_password="geheim")
    assert line.startswith("ssl.keystore.type=JKS: must be PEM: ")
    line = refused(ssl_keystore_type="PEM", ssl_keystore_location=pkcs12_of(pki, tmp_path / "x"))
    assert line.startswith("ssl.keystore.type=PEM: must be PKCS12: ")


def test_a_key_of_another_certificate_is_refused(pki: Certificates) -> None:
    key, _ = pem(pki.client("alice"))
    _, chain = pem(pki.server)
    line = refused(ssl_keystore_type="PEM", ssl_keystore_key=key, ssl_keystore_certificate_chain=chain)
    assert line.startswith("ssl.keystore.key=[hidden]: has a private key that is not that of its certificate")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "ssl.keystore.location: must be set: a TLS listener needs a key and a certificate"),
        ({"ssl_keystore_location": "/nowhere/x"}, "cannot be read: No such file or directory"),
        ({"ssl_keystore_location": "/"}, "cannot be read: Is a directory"),
        ({"ssl_keystore_key": "x", "ssl_keystore_type": "JKS"}, "ssl.keystore.type=JKS: must be PEM"),
        ({"ssl_keystore_key": "x", "ssl_keystore_type": "PEM"}, "ssl.keystore.certificate.chain: must be set where"),
        ({"ssl_keystore_certificate_chain": "x", "ssl_keystore_type": "PEM"}, "ssl.keystore.key: must be set where"),
        (
            {"ssl_keystore_key": "x", "ssl_keystore_certificate_chain": "x", "ssl_keystore_type": "PEM"},
            "ssl.keystore.key=[hidden]: has no private key",
        ),
        (
            {
                "ssl_keystore_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n",
                "ssl_keystore_certificate_chain": "x",
                "ssl_keystore_type": "PEM",
            },
            "ssl.keystore.key=[hidden]: is no PEM: a block that begins with -----BEGIN PRIVATE KEY----- has no end",
        ),
        (
            {
                "ssl_keystore_key": "-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----",
                "ssl_keystore_certificate_chain": "x",
                "ssl_keystore_type": "PEM",
            },
            "a block of PRIVATE KEY is not base64",
        ),
    ],
)
def test_what_cannot_be_a_key_store_is_one_line(keys: dict[str, str], said: str) -> None:
    line = refused(**keys)
    assert said in line
    assert "\n" not in line


def test_client_auth_needs_to_know_whom_to_trust(pki: Certificates) -> None:
    line = refused(ssl_keystore_type="PEM", ssl_keystore_location=pki.server.store, ssl_client_auth="required")
    assert line == "ssl.truststore.location: must be set where ssl.client.auth is required (default)"


def test_a_store_beyond_all_bounds_is_not_read(pki: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    text = pki.server.store.read_text()
    store.write_text(text + "\n" * ((1 << 20) - len(text)))
    make(ssl_keystore_type="PEM", ssl_keystore_location=store)
    store.write_text(text + "\n" * ((1 << 20) - len(text) + 1))
    assert "is longer than 1048576 bytes" in refused(ssl_keystore_type="PEM", ssl_keystore_location=store)


def test_the_key_of_a_listener_is_named_with_its_origin() -> None:
    config = BrokerConfig.of(
        {
            "listeners": "INTERNAL://:9093",
            "listener.security.protocol.map": "INTERNAL:SSL",
            "ssl.keystore.location": "/nowhere/all",
            "listener.name.internal.ssl.keystore.location": "/nowhere/own",
        }
    )
    with pytest.raises(ConfigError) as caught:
        make_context(config.on_listener("INTERNAL"), lambda *said: config.wrong_on_listener("INTERNAL", *said))
    name = "listener.name.internal.ssl.keystore.location=/nowhere/own"
    assert str(caught.value) == f"{name}: cannot be read: No such file or directory (--override)"
