"""What can be set on a client about TLS and SASL, in Kafka's names, with those of librdkafka and kafka-python beside
them.

What the values mean together is `ottla.client_core.security`'s affair, which the Spark source shares.
"""

# ruff: noqa: RUF009  # the calls make dataclass fields
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from ottla.client.option_kinds import option_of, secret, text, to_text_or_function
from ottla.client_core.sasl import MECHANISMS
from ottla.client_core.security import DEFAULTS, PROTOCOLS, Security, SecurityProblem, read_security

TokenFunction = Callable[[], "str | Awaitable[str]"]
"""Returns a bearer token; called before each login. A coroutine function may wait, any other must not."""

SECURITY_ALIASES = {
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_location": "ssl_keystore_location",
    "ssl_certfile": "ssl_keystore_location",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_keyfile": "ssl_key_location",
    "ssl_key_pem": "ssl_keystore_key",
}


def _to_word(words: Sequence[str], value: object) -> str:
    """Take one of some words, in any case, as Kafka takes these."""
    if not isinstance(value, str) or value.upper() not in words:
        raise ValueError(f"must be one of {', '.join(filter(None, words))}")
    return value.upper()


class SecurityKeywords(TypedDict, total=False):
    """The options about TLS and SASL as keyword arguments; `SecurityOptions` says what each means."""

    security_protocol: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    sasl_jaas_config: str
    sasl_oauthbearer_token: str | TokenFunction
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_scope: str
    sasl_login_callback_handler_class: str
    ssl_truststore_location: str
    ssl_truststore_type: str
    ssl_truststore_password: str
    ssl_truststore_certificates: str
    ssl_keystore_location: str
    ssl_keystore_type: str
    ssl_keystore_password: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_key_location: str
    ssl_key_password: str
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """The options about TLS and SASL. Secrets are in no `repr` and in no error."""

    security_protocol: str = option_of("PLAINTEXT", partial(_to_word, PROTOCOLS))
    """How connections are secured: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. The other options here count only where
    this one asks for them."""
    sasl_mechanism: str = option_of("", partial(_to_word, ("", *MECHANISMS)))
    """How the client says who it is: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Also `sasl_mechanisms`."""
    sasl_username: str = text("")
    """The user, for PLAIN and SCRAM. Also `sasl_plain_username`."""
    sasl_password: str = secret("")
    """The user's password. Also `sasl_plain_password`."""
    sasl_jaas_config: str = secret("")
    """User and password in Java's way: `org.apache.kafka.common.security.scram.ScramLoginModule required username="u"
    password="p";`, with `tokenauth=true` for a delegation token."""
    sasl_oauthbearer_token: str | TokenFunction = option_of("", to_text_or_function, is_secret=True)
    """The token for OAUTHBEARER, or a function (also a coroutine function) that returns one and is called before each
    login."""
    sasl_oauthbearer_token_endpoint_url: str = text("")
    """Where a token for OAUTHBEARER comes from before each login: `file:///PATH`, or a server that gives it to the
    `clientId` and `clientSecret` of an OAuthBearerLoginModule in `sasl_jaas_config`."""
    sasl_oauthbearer_scope: str = text("")
    """The scope that a server is asked for."""
    sasl_login_callback_handler_class: str = text("")
    """Java's OAuthBearerLoginCallbackHandler, which fetches tokens; known so that a file of Java's clients works."""
    ssl_truststore_location: str = text("")
    """The file of the authorities that are trusted, PEM or PKCS12; without one the system's. Also `ssl_ca_location`,
    `ssl_cafile`."""
    ssl_truststore_type: str = text("")
    """PEM or PKCS12; without it the file's own bytes say it."""
    ssl_truststore_password: str = secret("")
    """The password of a PKCS12 file."""
    ssl_truststore_certificates: str = secret("")
    """The authorities as PEM text, in place of a file. Also `ssl_ca_pem`."""
    ssl_keystore_location: str = text("")
    """The file of the client's own certificate, with its chain and its key. Also `ssl_certificate_location`,
    `ssl_certfile`."""
    ssl_keystore_type: str = text("")
    """PEM or PKCS12; without it the file's own bytes say it."""
    ssl_keystore_password: str = secret("")
    """The password of a PKCS12 file."""
    ssl_keystore_key: str = secret("")
    """The client's key as PEM text, in place of a file. Also `ssl_key_pem`."""
    ssl_keystore_certificate_chain: str = secret("")
    """The client's certificate and its chain as PEM text, in place of a file. Also `ssl_certificate_pem`."""
    ssl_key_location: str = text("")
    """The file of the client's key, PEM, where it is not in that of its certificate. Also `ssl_keyfile`."""
    ssl_key_password: str = secret("")
    """The password of an encrypted key."""
    ssl_endpoint_identification_algorithm: str = text("https")
    """How a broker's certificate is compared with its host name: https, or empty for not at all, which lets anybody
    with a certificate of the same authority stand between."""
    ssl_enabled_protocols: str = text("TLSv1.2,TLSv1.3")
    """The versions of TLS that are allowed."""

    def security(self) -> Security:
        """Return what these options mean together. Raises ValueError, naming the option as it is called here."""
        given = {name: getattr(self, name.replace(".", "_")) for name in DEFAULTS}
        brings_token = not isinstance(self.sasl_oauthbearer_token, str)
        if brings_token:
            given["sasl.oauthbearer.token"] = ""
        try:
            return read_security(given, brings_token=brings_token)
        except SecurityProblem as wrong:
            raise ValueError(f"{wrong.option.replace('.', '_')} {wrong.problem}") from None
