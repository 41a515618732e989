"""Certificates for tests and small networks: an authority and the certificates that it signs, as PEM. Pure: no files,
and the time is passed in.

They are made by the package `cryptography`, of the extra `security`. Keys are on the curve P-256: every Kafka client
accepts them, and they are made quickly. `ottla tls make` writes these to files (`tls.py`).
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Certificates are valid from so long before they were made, since the clock of a client may be slow."""


class Certificate(NamedTuple):
    """A certificate and its private key (PKCS #8), both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority. Its key is only in memory; `pem` returns it."""

    def __init__(self, name: str, now: datetime, days: int) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.now = now
        self.until = now + timedelta(days=days)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = _usage(signs_certificates=True)
        self._certificate = (
            _builder(self._name, self._name, self._key, now - CLOCKS_DIFFER, self.until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> Certificate:
        """The authority's own certificate and key."""
        return Certificate(self._certificate.public_bytes(serialization.Encoding.PEM), _key_pem(self._key, ""))

    def sign(
        self,
        subject: str,
        *,
        hosts: Sequence[str] = (),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        key_password: str = "",
    ) -> Certificate:
        """A certificate for `subject`, a distinguished name as RFC 4514 writes it (`CN=alice,O=Example`).

        With `hosts`, names and addresses, it is a server's; without, a client's. `key_password` encrypts the key.
        Raises ValueError for a subject that is no such name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        start = self.now - CLOCKS_DIFFER if not_before is None else not_before
        builder = _builder(
            x509.Name.from_rfc4514_string(subject),
            self._name,
            key,
            start,
            self.until if not_after is None else not_after,
        )
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Certificate(signed.public_bytes(serialization.Encoding.PEM), _key_pem(key, key_password))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
