"""Key stores and trust stores of a listener, converted to PEM from whichever form is configured.

    PEM      a file, or the text itself in `ssl.keystore.key`, `ssl.keystore.certificate.chain` and
             `ssl.truststore.certificates`
    PKCS12   a file, read by `cryptography` (the extra `security`)
    JKS      Java's own form is not read. But with type JKS Java also accepts a PKCS12 file, and JKS is Kafka's default:
             so the contents of the file decide

Which combinations are refused follows Kafka's `DefaultSslEngineFactory`. In addition, a PEM file may have several keys,
each followed by its chain; the first is for clients that ask for no name, or for one that no certificate has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.broker.security.tls.pem import MAX_BYTES, Block, blocks

if TYPE_CHECKING:
    from ottla.config.errors import ConfigError

JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
DER_SEQUENCE = b"\x30"
NEEDS_CRYPTOGRAPHY = "needs the package cryptography: `pip install 'ottla[security]'`"


class StoreKeys(Protocol):
    """The configuration keys of the stores, with their values for one listener."""

    ssl_keystore_type: str
    ssl_keystore_location: str
    ssl_keystore_password: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_key_password: str
    ssl_truststore_type: str
    ssl_truststore_location: str
    ssl_truststore_password: str
    ssl_truststore_certificates: str


Wrong = Callable[[str, str], "ConfigError"]
"""Makes the error of a key (its short name) and a reason."""


class KeyEntry:
    """A private key with its certificate chain, PEM; `password` opens the key. Its `repr` shows none of them."""

    __slots__ = ("chain", "key", "password")

    def __init__(self, key: str, chain: str, password: str) -> None:
        self.key = key
        self.chain = chain
        self.password = password


class Stores(NamedTuple):
    """The certificates that a listener presents and trusts. `trusted` is PEM, empty without a trust store; both were
    read from `files`.
    """

    entries: tuple[KeyEntry, ...]
    trusted: str
    files: tuple[Path, ...]


def read_stores(keys: StoreKeys, wrong: Wrong) -> Stores:
    """Read both stores. Raises the error that `wrong` makes, one line for the user."""
    files = tuple(Path(location) for location in (keys.ssl_keystore_location, keys.ssl_truststore_location) if location)
    return Stores(_key_store(keys, wrong), _trust_store(keys, wrong), files)


def _key_store(keys: StoreKeys, wrong: Wrong) -> tuple[KeyEntry, ...]:
    key, chain, location = keys.ssl_keystore_key, keys.ssl_keystore_certificate_chain, keys.ssl_keystore_location
    if key or chain:
        if keys.ssl_keystore_type != "PEM":
            raise wrong("ssl.keystore.type", "must be PEM where ssl.keystore.key is set")
        if not key:
            raise wrong("ssl.keystore.key", "must be set where ssl.keystore.certificate.chain is")
        if not chain:
            raise wrong("ssl.keystore.certificate.chain", "must be set where ssl.keystore.key is")
        if location:
            raise wrong("ssl.keystore.location", "must not be set where ssl.keystore.key is")
        if keys.ssl_keystore_password:
            raise wrong("ssl.keystore.password", "must not be set for PEM: ssl.key.password opens an encrypted key")
        found_keys = _blocks("ssl.keystore.key", key, wrong)
        found_chain = _blocks("ssl.keystore.certificate.chain", chain, wrong)
        parts = [*filter(_is_key, found_keys), *filter(_is_certificate, found_chain)]
        return _entries("ssl.keystore.key", parts, keys.ssl_key_password, wrong)
    if not location:
        raise wrong("ssl.keystore.location", "must be set: a TLS listener needs a key and a certificate")
    data = _read("ssl.keystore.location", location, wrong)
    if _is_pem("ssl.keystore", keys.ssl_keystore_type, location, data, wrong):
        if keys.ssl_keystore_password:
            raise wrong("ssl.keystore.password", "must not be set for PEM: ssl.key.password opens an encrypted key")
        found = _blocks("ssl.keystore.location", data.decode("utf-8", "replace"), wrong)
        return _entries("ssl.keystore.location", found, keys.ssl_key_password, wrong)
    if not keys.ssl_keystore_password:
        raise wrong("ssl.keystore.password", "must be set: a PKCS12 key store has a password")
    key_pem, certificates = _open_pkcs12("ssl.keystore", keys.ssl_keystore_password, data, wrong)
    if not key_pem or not certificates:
        raise wrong("ssl.keystore.location", "has no private key with a certificate")
    return (KeyEntry(key_pem, "".join(certificates), ""),)


def _trust_store(keys: StoreKeys, wrong: Wrong) -> str:
    location = keys.ssl_truststore_location
    if keys.ssl_truststore_certificates:
        if keys.ssl_truststore_type != "PEM":
            raise wrong("ssl.truststore.type", "must be PEM where ssl.truststore.certificates is set")
        if location:
            raise wrong("ssl.truststore.location", "must not be set where ssl.truststore.certificates is")
        if keys.ssl_truststore_password:
            raise wrong("ssl.truststore.password", "must not be set for PEM")
        return _certificates("ssl.truststore.certificates", keys.ssl_truststore_certificates, wrong)
    if not location:
        if keys.ssl_truststore_password:
            raise wrong("ssl.truststore.location", "must be set where ssl.truststore.password is")
        return ""
    data = _read("ssl.truststore.location", location, wrong)
    if _is_pem("ssl.truststore", keys.ssl_truststore_type, location, data, wrong):
        if keys.ssl_truststore_password:
            raise wrong("ssl.truststore.password", "must not be set for PEM")
        return _certificates("ssl.truststore.location", data.decode("utf-8", "replace"), wrong)
    _, certificates = _open_pkcs12("ssl.truststore", keys.ssl_truststore_password, data, wrong)
    if not certificates:
        raise wrong("ssl.truststore.location", "has no certificate")
    return "".join(certificates)


def _is_key(block: Block) -> bool:
    return block.is_key


def _is_certificate(block: Block) -> bool:
    return block.is_certificate


def _blocks(key: str, text: str, wrong: Wrong) -> list[Block]:
    try:
        return blocks(text)
    except ValueError as error:
        raise wrong(key, f"is no PEM: {error}") from None


def _certificates(key: str, text: str, wrong: Wrong) -> str:
    found = [block.text for block in _blocks(key, text, wrong) if block.is_certificate]
    if not found:
        raise wrong(key, "has no certificate (-----BEGIN CERTIFICATE-----)")
    return "".join(found)


def _entries(key: str, found: list[Block], password: str, wrong: Wrong) -> tuple[KeyEntry, ...]:
    """Each key with the certificates after it; a single key with all, wherever it is."""
    private = [block for block in found if block.is_key]
    if not private:
        raise wrong(key, "has no private key (-----BEGIN PRIVATE KEY-----)")
    if any(block.is_encrypted for block in private) and not password:
        raise wrong("ssl.key.password", f"must be set: the private key of {key} is encrypted")
    if len(private) == 1:
        chains = ["".join(block.text for block in found if block.is_certificate)]
    else:
        places = [index for index, block in enumerate(found) if block.is_key]
        chains = [
            "".join(block.text for block in found[place:following] if block.is_certificate)
            for place, following in zip(places, [*places[1:], len(found)], strict=True)
        ]
    if not all(chains):
        what = "has no certificate" if len(private) == 1 else "has a key without a certificate after it"
        raise wrong(key, f"{what} (-----BEGIN CERTIFICATE-----)")
    return tuple(KeyEntry(block.text, chain, password) for block, chain in zip(private, chains, strict=True))


def _read(key: str, location: str, wrong: Wrong) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise wrong(key, f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise wrong(key, "is not the name of a file") from None
    if len(data) > MAX_BYTES:
        raise wrong(key, f"is longer than {MAX_BYTES} bytes, so it is no store of keys or certificates")
    return data


def _is_pem(prefix: str, kind: str, location: str, data: bytes, wrong: Wrong) -> bool:
    """Whether the file is PEM and not PKCS12. Refuses JKS, and a file whose contents contradict its type."""
    if data.startswith(JKS_MAGIC):
        target = f"{Path(location).with_suffix('.p12')}"
        raise wrong(
            f"{prefix}.location",
            "is a JKS file, which only Java reads; convert it with `keytool -importkeystore -srckeystore"
            f" {location} -destkeystore {target} -deststoretype PKCS12` and set {prefix}.type=PKCS12",
        )
    is_pem = b"-----BEGIN " in data
    if kind == "PEM":
        if data.startswith(DER_SEQUENCE) and not is_pem:
            raise wrong(f"{prefix}.type", f"must be PKCS12: {location} is a binary file")
        return True
    if is_pem and not data.startswith(DER_SEQUENCE):
        raise wrong(f"{prefix}.type", f"must be PEM: {location} is a PEM file")
    return False


def _open_pkcs12(prefix: str, password: str, data: bytes, wrong: Wrong) -> tuple[str, list[str]]:
    """The decrypted private key and the certificates, with the key's own first; PEM."""
    try:
        from cryptography.hazmat.primitives import serialization  # heavy, and of an extra
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise wrong(f"{prefix}.type", f"PKCS12 {NEEDS_CRYPTOGRAPHY}, or use PEM") from None
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise wrong(f"{prefix}.location", f"cannot be opened: no PKCS12 file, or a wrong {prefix}.password") from None
    pem = serialization.Encoding.PEM
    entries = [store.cert, *store.additional_certs]
    certificates = [entry.certificate.public_bytes(pem).decode() for entry in entries if entry is not None]
    if store.key is None:
        return "", certificates
    key = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.decode(), certificates
