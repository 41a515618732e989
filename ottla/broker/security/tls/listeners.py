"""The TLS of all listeners of one broker.

A listener gets a new context when one of its files has changed (`look_at_files`, a chore), and when a client changes
its keys while the broker runs (`listener.name.NAME.ssl.keystore.location` and similar). Files or keys that cannot be
used change nothing: the client's request is refused, the changed file is logged once.
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
    """The TLS listeners of one broker, by name. Empty until `open`, and if no listener speaks TLS."""

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
        """Apply the keys that were set while the broker ran: the metadata are read. Raises ConfigError."""
        for listener in self.by_name.values():
            listener.refresh()

    def check(self, dynamic: Mapping[str, Mapping[str, str]]) -> None:
        """Check that the listeners could work with the values that a client wants to set, by listener and short key.

        Raises ConfigError.
        """
        for name, listener in self.by_name.items():
            listener.check(dynamic.get(name, {}))

    def look_at_files(self) -> bool:
        """Apply changed files; a chore that never leaves work for another step."""
        self.on_configuration()
        return False

    def on_configuration(self) -> None:
        """Make a new context for each listener whose keys or files have changed."""
        for listener in self.by_name.values():
            try:
                listener.refresh()
            except ConfigError as error:
                LOG.error(
                    "listener %s: what has changed cannot be used, the certificate stays: %s", listener.name, error
                )
