"""The `ssl.SSLContext` of a listener, made from its stores and keys, with readable errors for those of OpenSSL.

Keys reach OpenSSL through a file in memory (`ottla/pem_file.py`). Compression and renegotiation are off, and no session
is resumed: each handshake is a full one, so a certificate that is no longer trusted gets no connection. If there are
several certificates, the name in the client's SNI selects one.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Protocol

from ottla.broker.security.tls.ciphers import Choice, choose
from ottla.broker.security.tls.stores import NEEDS_CRYPTOGRAPHY, KeyEntry, StoreKeys, Wrong, read_stores
from ottla.pem_file import pem_file

if TYPE_CHECKING:
    from pathlib import Path

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsKeys(StoreKeys, Protocol):
    """All configuration keys from which a context is made."""

    ssl_enabled_protocols: tuple[str, ...]
    ssl_cipher_suites: tuple[str, ...]
    ssl_client_auth: str


class MadeContext:
    """A context, the files from which it was made, and warnings about its keys."""

    __slots__ = ("context", "files", "warnings")

    def __init__(self, context: ssl.SSLContext, files: tuple[Path, ...], warnings: tuple[str, ...]) -> None:
        self.context = context
        self.files = files
        self.warnings = warnings


def make_context(keys: TlsKeys, wrong: Wrong) -> MadeContext:
    """The context of a listener. Raises the error that `wrong` makes of a key and a reason."""
    try:
        choice = choose(keys.ssl_enabled_protocols, keys.ssl_cipher_suites)
    except ValueError as error:
        raise wrong(*error.args) from None
    stores = read_stores(keys, wrong)
    if keys.ssl_client_auth != "none" and not stores.trusted:
        raise wrong("ssl.truststore.location", f"must be set where ssl.client.auth is {keys.ssl_client_auth}")
    contexts = [_context(keys, entry, stores.trusted, choice, wrong) for entry in stores.entries]
    if len(contexts) > 1:
        _choose_by_name(contexts, stores.entries, wrong)
    return MadeContext(contexts[0], stores.files, choice.warnings)


def _context(keys: TlsKeys, entry: KeyEntry, trusted: str, choice: Choice, wrong: Wrong) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.minimum_version, context.maximum_version = choice.lowest, choice.highest
    context.num_tickets = 0
    if choice.suites:
        try:
            context.set_ciphers(choice.suites)
        except ssl.SSLError:
            raise wrong("ssl.cipher.suites", f"{ssl.OPENSSL_VERSION} has none of them") from None
    _load_key(context, entry, "ssl.keystore.key" if keys.ssl_keystore_key else "ssl.keystore.location", wrong)
    if trusted:
        name = "ssl.truststore.certificates" if keys.ssl_truststore_certificates else "ssl.truststore.location"
        try:
            context.load_verify_locations(cadata=trusted)
        except ssl.SSLError as error:
            raise wrong(name, f"has a certificate that OpenSSL does not read ({_said(error)})") from None
        # As in Java: every certificate in the trust store is trusted, even an intermediate one or a client's own.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = CLIENT_AUTH[keys.ssl_client_auth]
    return context


def _load_key(context: ssl.SSLContext, entry: KeyEntry, name: str, wrong: Wrong) -> None:
    with pem_file(entry.key + entry.chain) as path:
        try:
            # Without this function OpenSSL would ask for a password on the terminal.
            context.load_cert_chain(path, password=lambda: entry.password)
        except ssl.SSLError as error:
            said = _said(error)
            if "KEY_VALUES_MISMATCH" in said or "KEY_TYPE_MISMATCH" in said:
                raise wrong(name, "has a private key that is not that of its certificate") from None
            if "EE_KEY_TOO_SMALL" in said or "KEY_TOO_SMALL" in said or "MD_TOO_WEAK" in said:
                raise wrong(name, f"has a key or signature that OpenSSL considers too weak ({said})") from None
            if entry.password:
                raise wrong("ssl.key.password", f"does not open the private key of {name}, or that is broken") from None
            raise wrong(name, f"has a key or certificate that OpenSSL does not read ({said})") from None


def _choose_by_name(contexts: list[ssl.SSLContext], entries: tuple[KeyEntry, ...], wrong: Wrong) -> None:
    """Choose the certificate by the name that a client asks for; the first one is for all other names."""
    try:
        from cryptography import x509  # heavy, and of an extra: only for several certificates
    except ImportError:
        raise wrong("ssl.keystore.location", f"has several private keys, which {NEEDS_CRYPTOGRAPHY}") from None
    by_name: dict[str, ssl.SSLContext] = {}
    for context, entry in zip(contexts, entries, strict=True):
        certificate = x509.load_pem_x509_certificate(entry.chain.encode())
        with contextlib.suppress(x509.ExtensionNotFound):
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            for name in names.get_values_for_type(x509.DNSName):
                by_name.setdefault(name.lower(), context)

    def choose_context(handshake: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name is not None:
            name = name.lower()
            found = by_name.get(name) or by_name.get(f"*.{name.partition('.')[2]}")
            if found is not None:
                handshake.context = found

    contexts[0].sni_callback = choose_context


def _said(error: ssl.SSLError) -> str:
    return str(error.reason or error.args[-1])
