"""TLS of one listener: the context for the next connection, and the principal of a certificate.

A new context replaces the old one, which stays with the connections that have it. Files or keys that cannot be used
change nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.principal import ANONYMOUS, USER, Principal
from ottla.broker.security.tls.context import MadeContext, make_context
from ottla.broker.security.tls.distinguished_name import subject_of
from ottla.broker.security.tls.principal_rules import PrincipalRules
from ottla.config.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from ottla.config.broker import BrokerConfig

LOG = logging.getLogger("ottla.tls")

MAX_KNOWN_SUBJECTS = 1_000
Stamp = tuple[tuple[int, int, int] | None, ...]


class ListenerTls:
    """TLS of one listener. Raises ConfigError if its keys cannot be used."""

    def __init__(self, config: BrokerConfig, name: str) -> None:
        self.name = name
        self._config = config
        self._has_sasl = any(one.name == name and one.protocol.has_sasl for one in config.listeners)
        self._overrides = self._overrides_now()
        self._made = self._make(None)
        self._stamp = _stamp(self._made.files)
        keys = config.on_listener(name)
        try:
            self._rules = PrincipalRules(keys.ssl_principal_mapping_rules)
        except ValueError as error:
            raise config.wrong_on_listener(name, "ssl.principal.mapping.rules", str(error)) from None
        self.asks_for_certificates = keys.ssl_client_auth != "none"
        self.requires_certificates = keys.ssl_client_auth == "required"
        self._known: dict[bytes, Principal] = {}
        for warning in self._made.warnings:
            LOG.warning("listener %s: %s", name, warning)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._made.context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of this certificate (DER), which the handshake has checked; ANONYMOUS without one.

        Raises NoRuleApplies, ValueError for a subject that cannot be read.
        """
        if certificate is None or self._has_sasl:  # with SASL the login decides
            return ANONYMOUS
        known = self._known.get(certificate)
        if known is None:
            known = Principal(USER, self._rules.name_of(subject_of(certificate)))
            if len(self._known) >= MAX_KNOWN_SUBJECTS:
                self._known.clear()
            self._known[certificate] = known
        return known

    def check(self, overrides: Mapping[str, str]) -> None:
        """Check that the listener could work with these dynamic values of its keys. Raises ConfigError."""
        self._make(overrides)

    def refresh(self) -> None:
        """Make a new context for the next connections, if its files or keys have changed. Raises ConfigError; then the
        old context stays until something changes again.
        """
        overrides, stamp = self._overrides_now(), _stamp(self._made.files)
        if overrides == self._overrides and stamp == self._stamp:
            return
        self._overrides, self._stamp = overrides, stamp
        self._made = self._make(None)
        self._stamp = _stamp(self._made.files)
        LOG.info("listener %s: new connections get the certificate that is configured now", self.name)

    def _overrides_now(self) -> dict[str, str]:
        return dict(self._config.dynamic_overrides.get(self.name, {}))

    def _make(self, overrides: Mapping[str, str] | None) -> MadeContext:
        config, name = self._config, self.name
        keys = config.on_listener(name, dynamic=overrides)
        if self._has_sasl and "ssl.client.auth" not in config.listener_overrides.get(name, {}):
            keys.ssl_client_auth = "none"  # as in Kafka (KIP-684): with SASL, only a key of the listener turns it on

        def wrong(key: str, reason: str) -> ConfigError:
            return config.wrong_on_listener(name, key, reason, overrides)

        return make_context(keys, wrong)


def _stamp(files: tuple[Path, ...]) -> Stamp:
    """Values that change when a file changes; None for a missing file."""
    found: list[tuple[int, int, int] | None] = []
    for path in files:
        state = None
        with contextlib.suppress(OSError):
            status = os.stat(path)
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
        found.append(state)
    return tuple(found)
