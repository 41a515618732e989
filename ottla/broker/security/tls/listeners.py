"""The TLS of all listeners of one broker.

A listener gets a new context when a file of it has changed (`look_at_files`, a chore), and when a client changes its
keys while the broker runs (`listener.name.NAME.ssl.keystore.location` and its like). What cannot be used changes
nothing: a client is refused, a changed file is said once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.config.errors import ConfigError

if TYPE_CHECKING:
    from ottla.broker.security.tls.listener import ListenerTls
    from ottla.config.broker import BrokerConfig

LOG = logging.getLogger("ottla.tls")


class TlsListeners:
    """Those of one broker, by name. Empty until `open`, and where no listener speaks TLS."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.by_name: dict[str, ListenerTls] = {}

    def open(self) -> None:
        """Make the contexts of all listeners that speak TLS. Raises ConfigError."""
        for listener in self._config.listeners:
            if listener.protocol.is_encrypted:
                from ottla.broker.security.tls.listener import ListenerTls  # no other start needs it

                self.by_name[listener.name] = ListenerTls(self._config, listener.name)

    def on_start(self) -> None:
        """The metadata are read: take what was set while the broker ran. Raises ConfigError."""
        for listener in self.by_name.values():
            listener.refresh()

    def check(self, dynamic: Mapping[str, Mapping[str, str]]) -> None:
        """Whether the listeners could work with what a client wants to be set, by listener and short key.

        Raises ConfigError.
        """
        for name, listener in self.by_name.items():
            listener.check(dynamic.get(name, {}))

    def look_at_files(self) -> bool:
        """A chore: take what has changed. No work is left over."""
        self.on_configuration()
        return False

    def on_configuration(self) -> None:
        """Listeners that have other keys or files now get a new context."""
        for listener in self.by_name.values():
            try:
                listener.refresh()
            except ConfigError as error:
                LOG.error(
                    "listener %s: what has changed cannot be used, the certificate stays: %s", listener.name, error
                )
