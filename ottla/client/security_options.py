"""The options of a client about TLS and SASL, by Kafka's names and by those of librdkafka and kafka-python.

`ottla.client_core.security`, which the Spark source shares, checks and interprets the values together.
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
"""A function that returns a bearer token, called before each login. A coroutine function may wait, others must not."""

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
    """Accept one of some words, in any case, as in Kafka."""
    if not isinstance(value, str) or value.upper() not in words:
        raise ValueError(f"must be one of {', '.join(filter(None, words))}")
    return value.upper()


class SecurityKeywords(TypedDict, total=False):
    """The options about TLS and SASL as keyword arguments; `SecurityOptions` describes them."""

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
    """How connections are secured: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. The other options here apply only if
    this one requires them."""
    sasl_mechanism: str = option_of("", partial(_to_word, ("", *MECHANISMS)))
    """How the client authenticates: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Also `sasl_mechanisms`."""
    sasl_username: str = text("")
    """The user, for PLAIN and SCRAM. Also `sasl_plain_username`."""
    sasl_password: str = secret("")
    """The user's password. Also `sasl_plain_password`."""
    sasl_jaas_config: str = secret("")
    """User and password as in Java: `org.apache.kafka.common.security.scram.ScramLoginModule required username="u"
    password="p";`, with `tokenauth=true` for a delegation token."""
    sasl_oauthbearer_token: str | TokenFunction = option_of("", to_text_or_function, is_secret=True)
    """The token for OAUTHBEARER, or a function (also a coroutine function) that returns one and is called before each
    login."""
    sasl_oauthbearer_token_endpoint_url: str = text("")
    """The source of a token for OAUTHBEARER before each login: `file:///PATH`, or a server that issues it for the
    `clientId` and `clientSecret` of an OAuthBearerLoginModule in `sasl_jaas_config`."""
    sasl_oauthbearer_scope: str = text("")
    """The scope that is requested from a server."""
    sasl_login_callback_handler_class: str = text("")
    """Java's OAuthBearerLoginCallbackHandler, which fetches tokens; accepted so that files for Java's clients work."""
    ssl_truststore_location: str = text("")
    """The file of the trusted authorities, PEM or PKCS12; without one the system's. Also `ssl_ca_location`,
    `ssl_cafile`."""
    ssl_truststore_type: str = text("")
    """PEM or PKCS12 (also JKS), which the file must be; without it the format is detected. With text only PEM."""
    ssl_truststore_password: str = secret("")
    """The password of a PKCS12 file."""
    ssl_truststore_certificates: str = secret("")
    """The authorities as PEM text, in place of a file. Also `ssl_ca_pem`."""
    ssl_keystore_location: str = text("")
    """The file of the client's own certificate, with its chain and its key. Also `ssl_certificate_location`,
    `ssl_certfile`."""
    ssl_keystore_type: str = text("")
    """PEM or PKCS12 (also JKS), which the file must be; without it the format is detected. With text only PEM."""
    ssl_keystore_password: str = secret("")
    """The password of a PKCS12 file."""
    ssl_keystore_key: str = secret("")
    """The client's key as PEM text, in place of a file. Also `ssl_key_pem`."""
    ssl_keystore_certificate_chain: str = secret("")
    """The client's certificate and its chain as PEM text, in place of a file. Also `ssl_certificate_pem`."""
    ssl_key_location: str = text("")
    """The file of the client's key, PEM, if that is not in the file of its certificate. Also `ssl_keyfile`."""
    ssl_key_password: str = secret("")
    """The password of an encrypted key."""
    ssl_endpoint_identification_algorithm: str = text("https")
    """How a broker's certificate is compared with its host name: https, or empty for no comparison, which allows an
    attack by any server with a certificate of the same authority."""
    ssl_enabled_protocols: str = text("TLSv1.2,TLSv1.3")
    """The versions of TLS that are allowed."""

    def security(self) -> Security:
        """Return the meaning of these options together. Raises ValueError with the name of the option's field."""
        given = {name: getattr(self, name.replace(".", "_")) for name in DEFAULTS}
        brings_token = not isinstance(self.sasl_oauthbearer_token, str)
        if brings_token:
            given["sasl.oauthbearer.token"] = ""
        try:
            return read_security(given, brings_token=brings_token)
        except SecurityProblem as wrong:
            raise ValueError(f"{wrong.option.replace('.', '_')} {wrong.problem}") from None
