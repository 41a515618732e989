"""A client's TLS: the context with its certificates, and messages for failed handshakes.

Both drivers use it, `ottla.client` and `ottla.spark`. Certificates are PEM, in files or inline as in Kafka (KIP-651),
or PKCS12, which needs the package `cryptography`. The format of a file is detected from its bytes; a type
(`ssl.truststore.type`, `ssl.keystore.type`) that contradicts them is refused, as in Java, where JKS includes PKCS12.
With no trust store the system's authorities are trusted.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from ottla.client_core.security import SecurityProblem, TlsSettings
from ottla.pem_file import pem_file

MAX_STORE_BYTES = 4 * 1024 * 1024
"""Far more than the size of any store of certificates."""

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_LINE_CHARACTERS = 64


def context_of(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for connections to brokers. Raises SecurityProblem for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_name
    context.minimum_version = min(_VERSIONS[one] for one in settings.versions)
    context.maximum_version = max(_VERSIONS[one] for one in settings.versions)
    _trust(context, settings)
    if settings.keystore_location:
        _show_file(context, settings)
    elif settings.keystore_key:
        pem = _lines(settings.keystore_certificate_chain) + _lines(settings.keystore_key)
        with pem_file(pem) as path:
            _show(context, path, None, settings.key_password, "ssl.keystore.key")
    return context


def final_problem(error: BaseException | None) -> str:
    """Return why TLS connections fail, if every further attempt would fail the same way; else an empty text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error)
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return ""
    reason = error.reason or ""
    if reason in _NO_TLS:
        return "the server there does not use TLS: is security.protocol that of the listener?"
    if "ALERT" in reason and reason.rpartition("ALERT_")[2] in _ABOUT_OUR_CERTIFICATE:
        said = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
        return f"the broker does not accept this client's certificate (ssl.keystore.location): {said}"
    if reason.endswith("HANDSHAKE_FAILURE"):
        return "the broker refuses the TLS handshake: it may want a client's certificate (ssl.keystore.location)"
    if "PROTOCOL" in reason:
        return "there is no version of TLS that both sides allow (ssl.enabled.protocols)"
    said = (reason or str(error)).lower().replace("_", " ")
    return f"the TLS handshake failed: {said}"


_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
_ABOUT_OUR_CERTIFICATE = frozenset(
    {
        "ACCESS_DENIED",
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REQUIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "NO_CERTIFICATE",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    }
)
_EXPIRED, _NOT_YET_VALID, _OTHER_HOST, _OTHER_ADDRESS = 10, 9, 62, 64  # X509_V_ERR_* of OpenSSL


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message.rstrip(".")
    if error.verify_code == _EXPIRED:
        return "the broker's certificate has expired"
    if error.verify_code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet, or this machine's clock is slow"
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"the broker's certificate is for another host (ssl.endpoint.identification.algorithm): {said}"
    return f"the broker's certificate is not of an authority that this client trusts (ssl.truststore.location): {said}"


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    option = "ssl.truststore.location"
    if settings.truststore_certificates:
        option, pem = "ssl.truststore.certificates", _lines(settings.truststore_certificates)
    elif settings.truststore_location:
        data = _read(settings.truststore_location, option)
        kind = _kind(data, settings.truststore_type, settings.truststore_location, option)
        if kind == "PEM":
            pem = _lines(data.decode("latin-1"))
        else:
            pem = _pkcs12(data, settings.truststore_password, settings.truststore_location, "ssl.truststore")[1]
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    certificates = "".join(block[0] + "\n" for block in _PEM_BLOCK.finditer(pem) if block[1].endswith("CERTIFICATE"))
    if not certificates:
        raise SecurityProblem(option, "has no certificate (-----BEGIN CERTIFICATE-----)")
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as wrong:
        raise SecurityProblem(option, f"has a certificate that cannot be read: {_words(wrong)}") from None


def _show_file(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Load from files the certificate that the client presents to brokers, with its key."""
    option, location = "ssl.keystore.location", settings.keystore_location
    data = _read(location, option)
    if _kind(data, settings.keystore_type, location, option) == "PEM":
        key_location = settings.key_location or None
        if key_location is not None:
            _read(key_location, "ssl.key.location")
        _show(context, location, key_location, settings.key_password, option)
        return
    password = settings.keystore_password or settings.key_password
    key, certificates = _pkcs12(data, password, location, "ssl.keystore")
    if not key:
        raise SecurityProblem(option, f"{location} has no private key")
    with pem_file(key + certificates) as path:
        _show(context, path, None, "", option)


def _show(context: ssl.SSLContext, path: str, key_path: str | None, password: str, option: str) -> None:
    def ask() -> str:
        if not password:  # or OpenSSL would ask on the terminal
            raise SecurityProblem("ssl.key.password", "is missing: the private key is encrypted")
        return password

    try:
        context.load_cert_chain(path, key_path, ask)
    except ssl.SSLError as wrong:
        if wrong.reason == "KEY_VALUES_MISMATCH":
            problem = "the private key is not that of the certificate"
        elif password:
            problem = "the private key cannot be read: is ssl.key.password right?"
        else:
            reason = f": {_words(wrong)}" if wrong.reason else ""
            problem = f"there is no private key with its certificate in it{reason}"
        raise SecurityProblem(option, f"cannot be used: {problem}") from None


def _read(location: str, option: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SecurityProblem(option, f"{location} cannot be read: {reason}") from None
    if len(data) > MAX_STORE_BYTES:
        raise SecurityProblem(option, f"{location} is longer than {MAX_STORE_BYTES} bytes, so it is no key store")
    return data


def _kind(data: bytes, wanted: str, location: str, option: str) -> str:
    """Return PEM or PKCS12, as the bytes show; refuse JKS, and bytes that contradict the type that was configured."""
    if data.startswith(_JKS_MAGIC):
        raise SecurityProblem(
            option,
            f"{location} is a JKS store, which only Java reads; convert it: keytool -importkeystore -srckeystore "
            f"{location} -destkeystore {Path(location).stem}.p12 -deststoretype PKCS12",
        )
    found = "PEM" if b"-----BEGIN " in data else "PKCS12"
    if wanted == "PEM" and found != "PEM":
        raise SecurityProblem(option, f"{location} has no PEM in it (-----BEGIN ...-----)")
    if wanted in ("PKCS12", "JKS") and found == "PEM":
        wrong = option.replace("location", "type")
        raise SecurityProblem(option, f"{location} is PEM and not {wanted}: {wrong} is wrong")
    return found


def _lines(pem: str) -> str:
    """Return PEM with the line breaks that OpenSSL needs, which it often lacks in properties files."""
    blocks = []
    for label, body in _PEM_BLOCK.findall(pem):
        if ":" in body:  # the headers of an old encrypted key, whose lines matter
            blocks.append(f"-----BEGIN {label}-----{body}-----END {label}-----\n")
            continue
        packed = "".join(body.split())
        lines = [packed[at : at + _LINE_CHARACTERS] for at in range(0, len(packed), _LINE_CHARACTERS)]
        blocks.append("\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]))
    return "".join(blocks)


def _pkcs12(data: bytes, password: str, location: str, prefix: str) -> tuple[str, str]:
    """Return the key and the certificates of a store, as PEM; an empty text for a key that it does not have."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise SecurityProblem(
            f"{prefix}.location", f"{location} is PKCS12, which needs the package cryptography; PEM needs none"
        ) from None
    try:
        store = load_pkcs12(data, password.encode() or None)
    except ValueError:
        raise SecurityProblem(
            f"{prefix}.location", f"{location} cannot be read: is it PKCS12, and is {prefix}.password right?"
        ) from None
    found = ([store.cert] if store.cert is not None else []) + list(store.additional_certs)
    certificates = "".join(one.certificate.public_bytes(Encoding.PEM).decode() for one in found)
    if store.key is None:
        return "", certificates
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode(), certificates


def _words(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)
