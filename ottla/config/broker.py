"""The broker's configuration: all keys together, the checks between them, and how they are loaded.

    config = BrokerConfig.load("server.properties", environ=os.environ, overrides={"log.dirs": "/data"})
    config.log_segment_bytes, config.listeners, config.warnings

Every declared key is a plain attribute with a typed value (see `options.py`). A wrong value is a ConfigError, one
line; an unknown key is a warning, so that a server.properties for another broker works unchanged.

A config changes in one way: `set_dynamic` lets values that clients set while the broker runs override those that it
was started with. Only keys declared as dynamic can be set this way, and only their attributes change. Code that uses
such a key reads it again each time; code that keeps the value must be notified (`Catalog` notifies the topics).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path

from ottla.config.accepted import ACCEPTED_BROKER_KEYS, PER_BROKER_KEYS, REMOVED_KEYS
from ottla.config.access import Access
from ottla.config.conflicts import conflicts
from ottla.config.coordination import Groups, Offsets, Transactions
from ottla.config.cordoned import CORDONED_LOG_DIRS, cordoned_problem
from ottla.config.describe import Layer, broker_entry, merged, select
from ottla.config.errors import ConfigError
from ottla.config.group_bounds import misfit_of_groups
from ottla.config.images import read_image_variables
from ottla.config.listeners import Listener, SecurityProtocol, protocols_by_name, with_protocols
from ottla.config.logins import check_logins
from ottla.config.logs import Cleaner, Directories, Durability, Records, Retention, Segments
from ottla.config.memory import defaults_for
from ottla.config.network import Identity, ListenerLimits, Network, Topics
from ottla.config.on_listener import LISTENER_KEY, PerListener, listener_option
from ottla.config.options import (
    DEFAULT_ORIGIN,
    ConfigEntry,
    ConfigSource,
    Given,
    Option,
    Origin,
    OriginKind,
    text_of,
)
from ottla.config.ours import Limits, Promises, WallClock
from ottla.config.sasl import Sasl
from ottla.config.share_groups import ShareGroups, ShareState
from ottla.config.sources import read_environment, read_overrides, read_properties
from ottla.config.streams_groups import StreamsGroups
from ottla.config.tls import DYNAMIC_TLS_KEYS, Tls
from ottla.config.tokens import Tokens

_VARIABLE = re.compile(r"\$\{[^}]*:[^}]*\}")
_DYNAMIC = Origin(OriginKind.TOPIC, "")
_NOBODY_COULD_CONNECT = frozenset({"max.connections", "max.connections.per.ip", "max.connection.creation.rate"})
"""Keys that must not become 0 while the broker runs: no client could connect to change them back."""


class BrokerConfig(
    PerListener,
    Identity,
    Network,
    ListenerLimits,
    Topics,
    Directories,
    Segments,
    Retention,
    Durability,
    Records,
    Cleaner,
    Groups,
    Offsets,
    Transactions,
    ShareGroups,
    ShareState,
    StreamsGroups,
    Sasl,
    Tls,
    Access,
    Tokens,
    Promises,
    Limits,
    WallClock,
):
    """All keys of the broker.

    Further attributes: `warnings`, one line each; `origins`, by key, where each key that is set was set; `values`, by
    key, the parsed values that are set; `listener_overrides`, by the listener's name, the texts of the keys set for one
    listener (`listener.name.NAME.KEY`; `on_listener` returns their values); `dynamic_overrides`, the same for keys set
    while the broker runs, which win; `controller_listeners`, which are read and never bound.
    """

    def __init__(self, given: Mapping[str, Given], memory_bytes: int | None = None) -> None:
        """Use `load` or `of`. Raises ConfigError."""
        self.warnings: list[str] = []
        self.origins: dict[str, Origin] = {}
        self.values: dict[str, object] = {}
        self.listener_overrides: dict[str, dict[str, str]] = {}
        self.dynamic_overrides: dict[str, dict[str, str]] = {}
        self.controller_listeners: list[Listener] = []
        self._of_node: dict[str, object] = {}
        self._of_all_nodes: dict[str, object] = {}
        self._read(given)
        if memory_bytes is not None:
            self._fit(memory_bytes)
        self.assign(self.values)
        self._resolve_listeners()
        self._check()
        self._warn(given)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        memory_bytes: int | None = None,
    ) -> BrokerConfig:
        """The configuration of a server.properties, an environment and overrides; each overrides the one before.

        `memory_bytes` is the memory limit of the process (`memory.memory_limit`), None for no limit: where it is low,
        some defaults are smaller.

        Raises ConfigError for a file that cannot be read and for a value that cannot be used.
        """
        file = read_properties(path) if path is not None else {}
        stronger = read_environment(environ or {}) | read_overrides(overrides or {})
        images = read_image_variables(environ or {}, file=file, stronger=stronger)
        given = file | images.given | stronger
        if "config.providers" in given:
            from ottla.config.providers import resolve  # imported only where a provider is used

            given = resolve(given, environ or {})
        config = cls(given, memory_bytes)
        open_to_all = [str(one) for one in config.listeners if one.protocol is SecurityProtocol.PLAINTEXT]
        if images.forbids_plaintext and open_to_all:
            reason = f"forbids PLAINTEXT, and {', '.join(open_to_all)} has neither TLS nor a login; set listeners"
            raise ConfigError("ALLOW_PLAINTEXT_LISTENER", "no", reason, origin="environment")
        config.warnings[:0] = images.remarks
        return config

    @classmethod
    def of(cls, values: Mapping[str, object] | None = None) -> BrokerConfig:
        """The configuration with these keys set: for tests, where an unknown key is a mistake (ConfigError)."""
        for key in values or {}:
            if key not in cls.by_key and key not in ACCEPTED_BROKER_KEYS and not LISTENER_KEY.fullmatch(key):
                raise ConfigError(key, None, f"is not a key{_meant(key)}")
        return cls.load(overrides={key: text_of(value) or "" for key, value in (values or {}).items()})

    def origin_of(self, key: str) -> Origin:
        """Where the value of a key comes from."""
        return self.origins.get(key, DEFAULT_ORIGIN)

    @property
    def fitted(self) -> list[str]:
        """`key=value` of each default that is smaller than usual because there is little memory."""
        return [
            f"{key}={self.values[key]}"
            for key, origin in self.origins.items()
            if origin.kind is OriginKind.DEFAULT and key in self.values
        ]

    def advertised(self, listener_name: str) -> Listener | None:
        """The address that clients of this listener get; None for the address that they have connected to."""
        for listener in self.advertised_listeners:
            if listener.name == listener_name:
                return listener if listener.host else None
        return None

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries that DescribeConfigs returns for the broker: keys with these names, or all, sorted by name.

        Keys that Kafka 4 has removed are returned only if they are set.
        """
        set_keys = merged(self.layers)
        shown = [one for one in select(ALL_BROKER_KEYS, names) if one.key in set_keys or one.key not in REMOVED_KEYS]
        entries = [broker_entry(option, self.layers) for option in shown]
        if self.listener_overrides or self.dynamic_overrides:
            entries += self.listener_entries(None if names is None else frozenset(names))
            entries.sort(key=attrgetter("name"))
        return entries

    def describe_default(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries that DescribeConfigs returns for the empty broker name: only the keys set for all brokers."""
        layers = ((ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._of_all_nodes),)
        chosen = [option for option in select(ALL_BROKER_KEYS, names) if option.key in self._of_all_nodes]
        return [broker_entry(option, layers) for option in chosen]

    # --- while the broker runs ---------------------------------------------------------------------------------------

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The values that are set, the strongest layer first: this broker's dynamic keys, those of all brokers, those
        that it was started with.
        """
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self._of_node),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._of_all_nodes),
            (ConfigSource.STATIC_BROKER_CONFIG, self.values),
        )

    def set_dynamic(self, *, node: Mapping[str, str], all_nodes: Mapping[str, str]) -> list[str]:
        """Replace the values that clients set while the broker runs: for this broker, and for all. Returns warnings.

        A key that is not dynamic, or a value that cannot be read, has no effect and gives a warning: the metadata may
        come from another Kafka.
        """
        warnings: list[str] = []
        self.dynamic_overrides = self.overrides_in(node)
        self._of_node = _readable({key: node[key] for key in node if not self.is_set_on_listener(key)}, warnings)
        self._of_all_nodes = _readable(all_nodes, warnings, for_all=True)
        values = merged(self.layers)
        for option in self.by_key.values():
            if option.is_dynamic:
                setattr(self, option.attribute, option.effective(values))
        return warnings

    @staticmethod
    def check_dynamic(values: Mapping[str, str], *, for_all: bool = False) -> None:
        """Check values that a client wants to set while the broker runs, for this broker or `for_all`.

        Raises ConfigError: first for keys that need a restart or are unknown, all in one line as in Kafka; then for a
        value; then for keys that can be set for one broker only.
        """
        if without := sorted(values.keys() & DYNAMIC_TLS_KEYS):
            only = "These security configs can be dynamically updated only per-listener using the listener prefix"
            raise ConfigError(without[0], None, f"{only}: Set({', '.join(without)})")
        fixed = sorted(key for key in values if key not in ALL_BROKER_KEYS or not ALL_BROKER_KEYS[key].is_dynamic)
        if fixed:
            raise ConfigError(fixed[0], None, f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
        for key, text in values.items():
            value = ALL_BROKER_KEYS[key].read(Given(text, _DYNAMIC))
            if key == "log.retention.ms" and value == 0:
                raise ConfigError(key, text, "must not be 0; -1 keeps records for ever")
            if key in _NOBODY_COULD_CONNECT and value == 0:
                raise ConfigError(key, text, "must not be 0: no client could connect to set another value")
        if for_all and (single := sorted(values.keys() & PER_BROKER_KEYS)):
            level = "Cannot update these configs at default cluster level, broker id must be specified"
            raise ConfigError(single[0], None, f"{level}: Set({', '.join(single)})")

    def check_against_log_dirs(self, values: Mapping[str, str]) -> None:
        """Check the names of log directories in values that passed `check_dynamic`. Raises ConfigError."""
        if (text := values.get(CORDONED_LOG_DIRS)) is not None:
            names = self.by_key[CORDONED_LOG_DIRS].read(Given(text, _DYNAMIC))
            assert isinstance(names, tuple)
            if problem := cordoned_problem(names, self.log_dirs):
                raise ConfigError(CORDONED_LOG_DIRS, text, problem)

    # --- loading -----------------------------------------------------------------------------------------------------

    def _read(self, given: Mapping[str, Given]) -> None:
        for key, text in given.items():
            option = ALL_BROKER_KEYS.get(key)
            if option is not None:
                self.values[key] = option.read(text)
                self.origins[key] = text.origin
            elif match := LISTENER_KEY.fullmatch(key):
                self.listener_overrides.setdefault(match["listener"].upper(), {})[match["key"]] = text.text
                self.origins[key] = text.origin
        if "node.id" in self.values and "broker.id" not in self.values:  # clients read either of them (KafkaConfig)
            self.values["broker.id"] = self.values["node.id"]
            self.origins["broker.id"] = self.origins["node.id"]

    def _fit(self, memory_bytes: int) -> None:
        """Reduce defaults that are too large for the memory."""
        origin = Origin(OriginKind.DEFAULT, f"default for {memory_bytes} bytes of memory")
        longest = self.by_key["message.max.bytes"].effective(self.values)
        request_bytes = self.values.get("socket.request.max.bytes")
        assert isinstance(longest, int)
        assert request_bytes is None or isinstance(request_bytes, int)
        for key, most in defaults_for(memory_bytes, longest, request_bytes).items():
            default = self.by_key[key].default
            assert isinstance(default, int)
            if key not in self.values and (most < default or default < 0 < most):
                self.values[key] = most
                self.origins[key] = origin

    def _resolve_listeners(self) -> None:
        protocols = protocols_by_name(self.listener_security_protocol_map)
        controllers = {name.upper() for name in self.controller_listener_names}
        for name in controllers:
            protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
        self.controller_listeners = [one for one in self.listeners if one.name in controllers]
        bound = [one for one in self.listeners if one.name not in controllers]
        if not bound:
            raise self._wrong("listeners", "names only controller listeners; clients need one too")
        self.listeners = tuple(self._with_protocols("listeners", bound, protocols))
        advertised = [one for one in self.advertised_listeners if one.name not in controllers]
        self.advertised_listeners = tuple(self._with_protocols("advertised.listeners", advertised, protocols))
        names = {listener.name for listener in self.listeners}
        for listener in self.advertised_listeners:
            if listener.name not in names:
                raise self._wrong(
                    "advertised.listeners", f"{listener.name} is not among the listeners ({', '.join(sorted(names))})"
                )

    def _with_protocols(
        self, key: str, listeners: list[Listener], protocols: Mapping[str, SecurityProtocol]
    ) -> list[Listener]:
        try:
            return with_protocols(listeners, protocols)
        except ValueError as error:
            raise self._wrong(key, str(error)) from None

    def _check(self) -> None:
        for listener in self.listeners:
            self.on_listener(listener.name)
        check_logins(self)
        if "node.id" in self.values and "broker.id" in self.values and self.node_id != self.broker_id:
            raise self._wrong("broker.id", f"must be the same as node.id, which is {self.node_id}")
        for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            if self.values.get(key) == 0:
                raise self._wrong(key, "must not be 0; -1 keeps records for ever")
        self._check_created_topics()
        if problem := cordoned_problem(self.cordoned_log_dirs, self.log_dirs):
            raise self._wrong(CORDONED_LOG_DIRS, problem)
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise self._wrong(
                "group.max.session.timeout.ms",
                f"must be at least group.min.session.timeout.ms, which is {self.group_min_session_timeout_ms}",
            )
        if "classic" not in self.group_coordinator_rebalance_protocols:
            raise self._wrong("group.coordinator.rebalance.protocols", "must name classic, which is always served")
        if (misfit := misfit_of_groups(lambda key: getattr(self, self.by_key[key].attribute))) is not None:
            raise self._wrong(*misfit)
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            raise self._wrong("max.connections.per.ip", "must not be 0 without max.connections.per.ip.overrides")
        for name, own in self.listener_overrides.items():
            limits = self.on_listener(name)
            for key, limit in (
                ("max.connections", limits.max_connections),
                ("max.connection.creation.rate", limits.max_connection_creation_rate),
            ):
                if key in own and limit <= 0:
                    raise ConfigError(f"listener.name.{name.lower()}.{key}", str(limit), "must be at least 1")
        if "queued.max.request.bytes" not in self.values:
            self.queued_max_request_bytes = max(self.queued_max_request_bytes, self.socket_request_max_bytes)
        if self.queued_max_request_bytes == 0 or 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise self._wrong(
                "queued.max.request.bytes",
                f"must be -1 or at least socket.request.max.bytes, which is {self.socket_request_max_bytes}",
            )

    def _check_created_topics(self) -> None:
        if self.ottla_replication_factor_lenient:
            return
        for topic in self.ottla_create_topics:
            if topic.replicas > 1:
                raise self._wrong(
                    "ottla.create.topics",
                    f"{topic.entry}: there is one broker, so the number of replicas must be 1; "
                    "ottla.replication.factor.lenient=true counts more as 1",
                )

    def _wrong(self, key: str, reason: str) -> ConfigError:
        option = ALL_BROKER_KEYS[key]
        shown = option.show(self.values[key]) if key in self.values else option.show(option.default)
        if option.is_sensitive:
            shown = "[hidden]" if key in self.values else None
        return ConfigError(key, shown, reason, origin=str(self.origin_of(key)))

    def _warn(self, given: Mapping[str, Given]) -> None:
        unknown = [key for key in given if key not in ALL_BROKER_KEYS and not LISTENER_KEY.fullmatch(key)]
        zookeeper = [key for key in unknown if key.startswith("zookeeper.")]
        if zookeeper:
            self.warnings.append(
                f"{', '.join(sorted(zookeeper))}: no effect, there is no ZooKeeper ({given[zookeeper[0]].origin})"
            )
        for key in unknown:
            if key not in zookeeper:
                self.warnings.append(f"{key}: not a key that Ottla knows, no effect{_meant(key)} ({given[key].origin})")
        for key, one in given.items():
            option = ALL_BROKER_KEYS.get(key) or listener_option(key)
            if option is not None and option.is_sensitive and _VARIABLE.search(one.text):
                said = "no config provider has replaced its ${...:...}, which is part of the secret"
                self.warnings.append(f"{key}: {said} ({one.origin})")
        remarked = set()
        for key, value in self.values.items():
            option = ALL_BROKER_KEYS[key]
            if option.unusual and (remark := option.unusual(value)):
                remarked.add(key)
                self.warnings.append(f"{key}={option.show(value)}: {remark} ({self.origins[key]})")
        self._warn_about_hidden_keys()
        inert = sorted(
            key
            for key, value in self.values.items()
            if ALL_BROKER_KEYS[key].inert and value != ALL_BROKER_KEYS[key].default and key not in remarked
        )
        for key in sorted(filter(self.has_no_effect_on_its_listener, self.origins)):
            if remark := self._mistake_on_a_listener(key):
                self.warnings.append(f"{key}: {remark} ({self.origins[key]})")
            else:
                inert.append(key)
        if inert:
            self.warnings.append(f"accepted without effect (docs/configuration.md says why): {', '.join(inert)}")
        self.warnings += conflicts(self)

    def _mistake_on_a_listener(self, key: str) -> str:
        """The mistake in a key of one listener that has no effect; an empty text where Kafka knows the key."""
        match = LISTENER_KEY.fullmatch(key)
        assert match is not None
        name, short = match["listener"].upper(), match["key"]
        controllers = {one.upper() for one in self.controller_listener_names}
        if name not in controllers and all(one.name != name for one in self.listeners):
            return f"there is no listener {name}, no effect"
        known = (short in ALL_BROKER_KEYS, short.partition(".")[2] in ALL_BROKER_KEYS, listener_option(key) is not None)
        return "" if any(known) else f"not a key that Ottla knows, no effect{_meant(short)}"

    def _warn_about_hidden_keys(self) -> None:
        """Warn about keys without effect because a weaker source sets a stronger key: `--override log.dir=x` while the
        file has `log.dirs=y`.
        """
        for option in self.by_key.values():
            if not option.coarser:
                continue
            winner = next((link.key for link in option.chain() if link.key in self.values), None)
            for link in option.chain()[1:]:
                if winner and link.key in self.values and self.origins[link.key].kind > self.origins[winner].kind:
                    self.warnings.append(f"{link.key}: no effect, {winner} wins ({self.origins[winner]})")


ALL_BROKER_KEYS: dict[str, Option] = BrokerConfig.by_key | ACCEPTED_BROKER_KEYS
"""Every key that a broker accepts, including those without effect."""


def _readable(texts: Mapping[str, str], warnings: list[str], *, for_all: bool = False) -> dict[str, object]:
    """The values of dynamic keys that can be read."""
    values: dict[str, object] = {}
    for key, text in texts.items():
        try:
            BrokerConfig.check_dynamic({key: text}, for_all=for_all)
            values[key] = ALL_BROKER_KEYS[key].read(Given(text, _DYNAMIC))
        except ConfigError as error:
            warnings.append(f"{key}, set while the broker ran, has no effect: {error}")
    return values


def _meant(key: str) -> str:
    import difflib  # only for a mistyped key

    close = difflib.get_close_matches(key, ALL_BROKER_KEYS, n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""
