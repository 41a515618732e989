"""Keys about encryption: TLS."""

from __future__ import annotations

from ottla.config.declare import choice, password, string, words
from ottla.config.options import Options

_STORE = "JKS, Kafka's default, means PKCS12 here, as it may in Java; a file in Java's own format is refused."


class Tls(Options):
    """Encryption (TLS)."""

    ssl_keystore_type = choice("JKS", "JKS", "PKCS12", "PEM", doc=f"Format of the key store. {_STORE}")
    ssl_keystore_location = string(
        "", empty_is_unset=True, doc="File of the key store: for PEM the private key and the chain of its certificate."
    )
    ssl_keystore_password = password(doc="Password of a PKCS12 key store.")
    ssl_keystore_key = password(doc="Private key, PEM; instead of a file.")
    ssl_keystore_certificate_chain = password(doc="Certificate chain, PEM; instead of a file.")
    ssl_key_password = password(doc="Password of the private key, for PEM.")
    ssl_truststore_type = choice("JKS", "JKS", "PKCS12", "PEM", doc=f"Format of the trust store. {_STORE}")
    ssl_truststore_location = string(
        "", empty_is_unset=True, doc="File of the trust store: the authorities of clients' certificates."
    )
    ssl_truststore_password = password(doc="Password of a PKCS12 trust store.")
    ssl_truststore_certificates = password(doc="Trusted certificates, PEM; instead of a file.")
    ssl_client_auth = choice(
        "none", "none", "requested", "required", doc="Whether clients show a certificate, which then identifies them."
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT",
        doc="How the subject of a client's certificate is mapped to a user: rules as `RULE:PATTERN/REPLACEMENT/[LU]`, "
        "separated by commas, and `DEFAULT` for the whole subject. Patterns are those of RE2.",
    )
    ssl_protocol = string("TLSv1.3", inert="`ssl.enabled.protocols` sets the versions", doc="Protocol version.")
    ssl_enabled_protocols = words(("TLSv1.2", "TLSv1.3"), doc="Protocol versions that are allowed.")
    ssl_cipher_suites = words(
        (),
        doc="Cipher suites that are allowed, by Java's names; empty for all that OpenSSL considers good. Those of TLS "
        "1.3 are on or off together.",
    )
    ssl_endpoint_identification_algorithm = string(
        "https", inert="there is no other broker", doc="How host names are checked."
    )


DYNAMIC_TLS_KEYS = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""Keys that may change on one listener of one broker while it runs (Kafka's `SslConfigs.RECONFIGURABLE_CONFIGS`)."""
