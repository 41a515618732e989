"""Keys about encryption: TLS."""

from __future__ import annotations

from ottla.config.declare import choice, password, string, words
from ottla.config.options import Options

_TLS = "TLS comes in a later version; its listeners are refused"


class Tls(Options):
    """Encryption (TLS)."""

    ssl_keystore_type = choice("JKS", "JKS", "PKCS12", "PEM", inert=_TLS, doc="Form of the key store.")
    ssl_keystore_location = string("", empty_is_unset=True, inert=_TLS, doc="File of the key store.")
    ssl_keystore_password = password(inert=_TLS, doc="Password of the key store.")
    ssl_keystore_key = password(inert=_TLS, doc="Private key, PEM.")
    ssl_keystore_certificate_chain = password(inert=_TLS, doc="Certificate chain, PEM.")
    ssl_key_password = password(inert=_TLS, doc="Password of the private key.")
    ssl_truststore_type = choice("JKS", "JKS", "PKCS12", "PEM", inert=_TLS, doc="Form of the trust store.")
    ssl_truststore_location = string("", empty_is_unset=True, inert=_TLS, doc="File of the trust store.")
    ssl_truststore_password = password(inert=_TLS, doc="Password of the trust store.")
    ssl_truststore_certificates = password(inert=_TLS, doc="Trusted certificates, PEM.")
    ssl_client_auth = choice(
        "none", "none", "requested", "required", inert=_TLS, doc="Whether clients show a certificate."
    )
    ssl_principal_mapping_rules = string("DEFAULT", inert=_TLS, doc="How a certificate's name becomes a principal.")
    ssl_protocol = string("TLSv1.3", inert=_TLS, doc="Protocol version.")
    ssl_enabled_protocols = words(("TLSv1.2", "TLSv1.3"), inert=_TLS, doc="Protocol versions that are allowed.")
    ssl_cipher_suites = words((), inert=_TLS, doc="Cipher suites that are allowed; empty for all.")
    ssl_endpoint_identification_algorithm = string("https", inert=_TLS, doc="How host names are checked.")
