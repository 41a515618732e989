"""The security of a client's connections: Kafka's options `security.protocol`, `ssl.*` and `sasl.*`, read and checked.

`read_security` takes them as texts by Kafka's names and returns plain values, which the drivers use and which can be
sent to other processes. No file is opened here: certificates are loaded by `ottla.client_tls`, tokens are fetched by
`ottla.client_tokens`. Neither a `repr` nor an error shows a secret.

As in Kafka, `ssl.*` and `sasl.*` apply only where `security.protocol` asks for them: one file serves many listeners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from ottla.client_core.sasl import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM, Login, problem_of
from ottla.jaas import JaasEntry, parse_jaas

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES = ("", "PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

DEFAULTS: Mapping[str, str] = {
    "security.protocol": "PLAINTEXT",
    "ssl.truststore.location": "",
    "ssl.truststore.type": "",
    "ssl.truststore.password": "",
    "ssl.truststore.certificates": "",
    "ssl.keystore.location": "",
    "ssl.keystore.type": "",
    "ssl.keystore.password": "",
    "ssl.keystore.key": "",
    "ssl.keystore.certificate.chain": "",
    "ssl.key.location": "",
    "ssl.key.password": "",
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.enabled.protocols": ",".join(TLS_VERSIONS),
    "sasl.mechanism": "",
    "sasl.username": "",
    "sasl.password": "",
    "sasl.jaas.config": "",
    "sasl.oauthbearer.token": "",
    "sasl.oauthbearer.token.endpoint.url": "",
    "sasl.oauthbearer.scope": "",
    "sasl.login.callback.handler.class": "",
}
"""Every option that is read, with its default. Java's clients do not have `ssl.key.location`, `sasl.username`,
`sasl.password` (librdkafka's) and `sasl.oauthbearer.token`."""

SECRET = frozenset(
    {
        "ssl.truststore.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.password",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.token",
    }
)
"""The options whose value must never be shown."""

_MODULES = {PLAIN: "PlainLoginModule", OAUTHBEARER: "OAuthBearerLoginModule"} | dict.fromkeys(SCRAM, "ScramLoginModule")
_EXTENSION_PREFIX = "extension_"
_TOKEN_FETCHER = "OAuthBearerLoginCallbackHandler"
"""The class by which Java fetches tokens. Files for Java's clients name it; clients here fetch tokens without it."""


class SecurityProblem(ValueError):
    """An option that cannot be used. `option` is Kafka's name for it; `problem` says what is wrong with its value."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(f"{option} {problem}")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A client's certificates, and its requirements for the broker's certificate."""

    truststore_location: str = ""
    """A file; with none, and no `truststore_certificates`, the system's authorities are trusted."""
    truststore_type: str = ""
    truststore_password: str = field(default="", repr=False)
    truststore_certificates: str = field(default="", repr=False)
    keystore_location: str = ""
    keystore_type: str = ""
    keystore_password: str = field(default="", repr=False)
    keystore_key: str = field(default="", repr=False)
    keystore_certificate_chain: str = field(default="", repr=False)
    key_location: str = ""
    key_password: str = field(default="", repr=False)
    checks_host_name: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The source of a bearer token before each login: a file, or a server that issues it for client credentials."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Security:
    """The security of connections. `token_source` is set where `login` still needs its token."""

    protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    login: Login | None = None
    token_source: TokenSource | None = None

    def with_token(self, token: str) -> Login:
        """Return the login with a token that was fetched. Raises SecurityProblem for text that is no bearer token."""
        assert self.login is not None
        return _checked(replace(self.login, token=token.strip()), "sasl.oauthbearer.token")


def read_security(given: Mapping[str, str], *, brings_token: bool = False) -> Security:
    """Return the security of connections. `given` has texts by names of `DEFAULTS`; an empty text counts as not set.

    With `brings_token` the driver itself provides the token for OAUTHBEARER. Raises SecurityProblem.
    """
    values = {name: given.get(name, "").strip() or default for name, default in DEFAULTS.items()}
    if "ssl.endpoint.identification.algorithm" in given:  # an empty text means that no name is checked
        values["ssl.endpoint.identification.algorithm"] = given["ssl.endpoint.identification.algorithm"].strip()
    protocol = values["security.protocol"].upper()
    if protocol not in PROTOCOLS:
        raise SecurityProblem("security.protocol", f"must be one of {', '.join(PROTOCOLS)}")
    tls = _tls(values) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Security(protocol, tls)
    mechanism = values["sasl.mechanism"].upper()
    if mechanism not in MECHANISMS:
        raise SecurityProblem("sasl.mechanism", f"must be one of {', '.join(MECHANISMS)}")
    entry = _jaas_entry(values["sasl.jaas.config"], mechanism)
    if mechanism == OAUTHBEARER:
        return _bearer(protocol, tls, values, entry, brings_token)
    return Security(protocol, tls, _login(mechanism, values, entry))


def _jaas_entry(text: str, mechanism: str) -> JaasEntry | None:
    if not text:
        return None
    try:
        entry = parse_jaas(text)
    except ValueError as wrong:
        raise SecurityProblem("sasl.jaas.config", str(wrong)) from None
    if entry.module_name != _MODULES[mechanism]:
        raise SecurityProblem(
            "sasl.jaas.config", f"names {entry.module_name}; sasl.mechanism={mechanism} needs {_MODULES[mechanism]}"
        )
    return entry


def _login(mechanism: str, values: Mapping[str, str], entry: JaasEntry | None) -> Login:
    username, password = values["sasl.username"], values["sasl.password"]
    if entry is None:
        if not username:
            raise SecurityProblem("sasl.username", f"is missing, or sasl.jaas.config: {mechanism} needs a user")
        return _checked(Login(mechanism, username, password), "sasl.password" if not password else "sasl.username")
    if username or password:
        raise SecurityProblem("sasl.jaas.config", "and sasl.username are alternatives: give one of them")
    is_token = entry.options.get("tokenauth", "").lower() == "true"
    login = Login(
        mechanism,
        entry.options.get("username", ""),
        entry.options.get("password", ""),
        is_delegation_token=is_token and mechanism in SCRAM,
    )
    return _checked(login, "sasl.jaas.config")


def _checked(login: Login, option: str) -> Login:
    problem = problem_of(login)
    if problem:
        raise SecurityProblem(option, f"cannot be used: {problem}")
    return login


def _bearer(
    protocol: str, tls: TlsSettings | None, values: Mapping[str, str], entry: JaasEntry | None, brings_token: bool
) -> Security:
    fetcher = values["sasl.login.callback.handler.class"]
    if fetcher and fetcher.rpartition(".")[2] != _TOKEN_FETCHER:
        raise SecurityProblem(
            "sasl.login.callback.handler.class", f"names code of Java; only {_TOKEN_FETCHER} is known"
        )
    options = {} if entry is None else entry.options
    extensions = {
        name.removeprefix(_EXTENSION_PREFIX): value
        for name, value in options.items()
        if name.startswith(_EXTENSION_PREFIX)
    }
    login = Login(OAUTHBEARER, token=values["sasl.oauthbearer.token"], extensions=extensions)
    if brings_token:
        return Security(protocol, tls, login)
    url = values["sasl.oauthbearer.token.endpoint.url"]
    if login.token:
        return Security(protocol, tls, _checked(login, "sasl.oauthbearer.token"))
    if not url:
        raise SecurityProblem(
            "sasl.oauthbearer.token.endpoint.url",
            "is missing: where is the token? file:///PATH, or https://... with clientId and clientSecret in "
            "sasl.jaas.config (or sasl.oauthbearer.token)",
        )
    parts = urlsplit(url)
    if parts.scheme not in ("file", "http", "https") or (parts.scheme != "file" and not parts.hostname):
        raise SecurityProblem("sasl.oauthbearer.token.endpoint.url", "must be file:///PATH, https://... or http://...")
    source = TokenSource(
        url,
        options.get("clientId", ""),
        options.get("clientSecret", ""),
        options.get("scope", values["sasl.oauthbearer.scope"]),
    )
    if parts.scheme != "file" and not (source.client_id and source.client_secret):
        raise SecurityProblem("sasl.jaas.config", "has no clientId and clientSecret, by which a token is asked for")
    return Security(protocol, tls, login, source)


def _tls(values: Mapping[str, str]) -> TlsSettings:
    for kind in ("truststore", "keystore"):
        name = f"ssl.{kind}.type"
        if values[name].upper() not in STORE_TYPES:
            raise SecurityProblem(name, "must be PEM or PKCS12")
    algorithm = values["ssl.endpoint.identification.algorithm"].lower()
    if algorithm not in ("https", ""):
        raise SecurityProblem("ssl.endpoint.identification.algorithm", "must be https, or empty to check no host name")
    versions = tuple(one.strip() for one in values["ssl.enabled.protocols"].split(",") if one.strip())
    if not versions or not set(versions) <= set(TLS_VERSIONS):
        raise SecurityProblem("ssl.enabled.protocols", f"must be of {', '.join(TLS_VERSIONS)}")
    _check_stores(values)
    return TlsSettings(
        truststore_location=values["ssl.truststore.location"],
        truststore_type=values["ssl.truststore.type"].upper(),
        truststore_password=values["ssl.truststore.password"],
        truststore_certificates=values["ssl.truststore.certificates"],
        keystore_location=values["ssl.keystore.location"],
        keystore_type=values["ssl.keystore.type"].upper(),
        keystore_password=values["ssl.keystore.password"],
        keystore_key=values["ssl.keystore.key"],
        keystore_certificate_chain=values["ssl.keystore.certificate.chain"],
        key_location=values["ssl.key.location"],
        key_password=values["ssl.key.password"],
        checks_host_name=algorithm == "https",
        versions=versions,
    )


def _check_stores(values: Mapping[str, str]) -> None:
    """Refuse options that name the same store twice, or only half of one, or text that is not PEM by its type."""
    for kind, name in (("truststore", "certificates"), ("keystore", "key"), ("keystore", "certificate.chain")):
        if values[f"ssl.{kind}.{name}"] and values[f"ssl.{kind}.type"].upper() not in ("", "PEM"):
            raise SecurityProblem(f"ssl.{kind}.type", f"must be PEM (or not set) where ssl.{kind}.{name} is set")
    if values["ssl.truststore.location"] and values["ssl.truststore.certificates"]:
        raise SecurityProblem("ssl.truststore.certificates", "and ssl.truststore.location are alternatives: give one")
    has_file = bool(values["ssl.keystore.location"])
    has_chain, has_key = bool(values["ssl.keystore.certificate.chain"]), bool(values["ssl.keystore.key"])
    if has_file and (has_chain or has_key):
        raise SecurityProblem("ssl.keystore.key", "and ssl.keystore.location are alternatives: give one")
    if has_chain != has_key:
        raise SecurityProblem("ssl.keystore.key", "goes with ssl.keystore.certificate.chain: give both, or none")
    if values["ssl.key.location"] and not has_file:
        raise SecurityProblem("ssl.key.location", "needs the certificate in ssl.keystore.location")
