"""The logins of listeners with SASL, from the configuration: mechanisms, and the users of PLAIN.

`check_logins` refuses a configuration with which no client could log in. Errors never show a JAAS entry: it contains
passwords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Protocol

from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener
from ottla.config.options import Origin
from ottla.config.sasl import Sasl
from ottla.jaas import parse_jaas

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_USER = "user_"


class ListeningConfig(Protocol):
    """A `BrokerConfig`, as far as logins are concerned."""

    @property
    def listeners(self) -> Sequence[Listener]:
        """The listeners that are bound."""

    @property
    def listener_overrides(self) -> Mapping[str, Mapping[str, str]]:
        """The texts of the keys that are set for one listener, by its name."""

    def on_listener(self, name: str, mechanism: str = "") -> Sasl:
        """The effective keys of this listener."""

    def origin_of(self, key: str) -> Origin:
        """The place where a key is set."""


def check_logins(config: ListeningConfig) -> None:
    """Check every listener with SASL. Raises ConfigError with what to set."""
    for listener in config.listeners:
        if not listener.protocol.has_sasl:
            continue
        name = listener.name
        mechanisms = config.on_listener(name).sasl_enabled_mechanisms
        key = _key(config, name, "sasl.enabled.mechanisms")
        served = ", ".join(MECHANISMS)
        if mechanisms == ("GSSAPI",) or not mechanisms:
            reason = f"offers no mechanism that is served; set {key} to some of {served}, for clients of {listener}"
            raise ConfigError(key, ",".join(mechanisms), reason, origin=str(config.origin_of(key)))
        for mechanism in mechanisms:
            if mechanism not in MECHANISMS:
                reason = f"{mechanism} is not served; the mechanisms are {served}"
                raise ConfigError(key, ",".join(mechanisms), reason, origin=str(config.origin_of(key)))
        if "PLAIN" in mechanisms:
            plain_passwords(config, name)
        if "OAUTHBEARER" in mechanisms:
            _check_tokens(config, name)


def plain_passwords(config: ListeningConfig, listener: str) -> dict[str, str]:
    """The users of PLAIN with their passwords, by name: the options `user_NAME` of the listener's JAAS entry.

    The entry is `listener.name.NAME.plain.sasl.jaas.config`, or `sasl.jaas.config` of the listener or of all. Raises
    ConfigError where there is none, where it cannot be read, and where it has no users.
    """
    text = config.on_listener(listener, "PLAIN").sasl_jaas_config
    wanted = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
    if not text.strip():
        example = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="PASSWORD";'
        raise ConfigError(wanted, None, f"must be set, for PLAIN is enabled; it names the users, as {example}")
    key = _key(config, listener, "sasl.jaas.config", "PLAIN")
    origin = str(config.origin_of(key))
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(key, "[hidden]", str(error), origin=origin) from None
    if entry.module_name != "PlainLoginModule":
        raise ConfigError(key, "[hidden]", "must name PlainLoginModule, for PLAIN is enabled", origin=origin)
    users = {option[len(_USER) :]: value for option, value in entry.options.items() if option.startswith(_USER)}
    if not users:
        raise ConfigError(key, "[hidden]", 'names no users; add user_NAME="PASSWORD" for each', origin=origin)
    return users


def _check_tokens(config: ListeningConfig, listener: str) -> None:
    url = config.on_listener(listener, "OAUTHBEARER").sasl_oauthbearer_jwks_endpoint_url
    key = _key(config, listener, "sasl.oauthbearer.jwks.endpoint.url", "OAUTHBEARER")
    if not url:
        reason = "must be set, for OAUTHBEARER is enabled: a JWKS as file:///PATH or https://HOST/PATH (there is no"
        raise ConfigError(key, None, f"{reason} validator of unsigned tokens)")
    if not url.lower().startswith(("file:", "https://", "http://")):
        raise ConfigError(key, url, "must be a file:, https: or http: URL", origin=str(config.origin_of(key)))
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        reason = "OAUTHBEARER needs two packages more: pip install 'ottla[security]'"
        raise ConfigError("sasl.enabled.mechanisms", None, reason)


def _key(config: ListeningConfig, listener: str, key: str, mechanism: str = "") -> str:
    """The full name of the effective key: that of the listener and the mechanism, of the listener, or of all."""
    overrides = config.listener_overrides.get(listener.upper(), {})
    own = f"{mechanism.lower()}.{key}"
    if mechanism and own in overrides:
        return f"listener.name.{listener.lower()}.{own}"
    return f"listener.name.{listener.lower()}.{key}" if key in overrides else key
