"""The audit log: which client did what, from where, and whether that was allowed (`ottla.audit.log`; off by default).

One event is one line of JSON, to a file or to a topic (`audit_sinks.py`):

    {"time": "2026-11-23T12:00:00.000Z", "event": "authorization", "outcome": "denied", "principal": "User:alice",
     "host": "10.0.0.7", "port": 50412, "listener": "SASL_SSL", "client_id": "app", "api": "Produce",
     "operation": "WRITE", "resource_type": "TOPIC", "resource": "orders"}

    authentication  succeeded or failed, by SASL or in the handshake of TLS (`logins.py`)
    authorization   denied; with `ottla.audit.allowed=true` also allowed (once for all that templates answer after it)
    request         administration: an API of ADMINISTRATION was answered; with the error, if it failed as a whole
    quota           throttled, and for how long
    connection      refused

No request waits for it: an event is put into a bounded queue, and a worker writes it later. Events beyond
`ottla.audit.max.per.second`, or more than the disk can take, are counted and left out; the next written event reports
how many (`"event": "dropped"`). One address gets at most a quarter of the events, so that no client can hide in noise.
Only names are written of a request, each truncated to MOST_CHARACTERS; JSON escapes all control characters.

`Services.audit` is None where it is off. All calls on the broker's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from ottla.config.errors import ConfigError
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.kafka_uuid import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.peer import Peer
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.workers import Workers
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.message import Request, Response
    from ottla.storage.files.clock import Clock

LOG = logging.getLogger("ottla.audit")

Event = dict[str, Any]

MAX_WAITING: Final = 10_000
"""Events that wait for the worker, some 1 KB each."""
MOST_AT_ONCE: Final = 1_000
FLUSH_MS: Final = 50
SHARE_OF_ONE: Final = 4
MOST_CHARACTERS: Final = 256
MOST_NAMES: Final = 20
ADMINISTRATION: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.WRITE_TXN_MARKERS,
        38,  # CreateDelegationToken
        39,  # RenewDelegationToken
        40,  # ExpireDelegationToken
        51,  # AlterUserScramCredentials
    }
)
"""The APIs that change something for other clients."""
_LISTING: Final = frozenset(
    {ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
)
"""APIs that leave out what the client may not describe: it has not asked for those by name."""
_LISTS: Final = (
    "topics",
    "topic_names",
    "resources",
    "groups_names",
    "entries",
    "creations",
    "upsertions",
    "deletions",
    "filters",
    "feature_updates",
    "dirs",
    "markers",
)
_NAMES: Final = ("name", "resource_name", "topic", "feature", "path", "topic_id", "producer_id")


class AuditedContext(Protocol):
    """The parts of a request's `Context` that are written."""

    api_key: int
    client_id: str | None
    connection: Peer


class Sink(Protocol):
    """The destination of events (`audit_sinks.py`)."""

    def open(self) -> None:
        """Check that events can be written. Raises OSError."""

    def prepare(self, events: Sequence[Event]) -> object:
        """Encode them, and write them where that may block. In a worker. Raises OSError."""

    def deliver(self, prepared: object) -> None:
        """Do the rest, on the broker's thread. Raises OSError."""


class Audit:
    """See the module."""

    administration = ADMINISTRATION

    def __init__(self, config: BrokerConfig, clock: Clock, timers: Timers, workers: Workers, sink: Sink) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self._sink = sink
        self._waiting: deque[Event] = deque()
        self._is_busy = self._is_closed = False
        self._second = -1
        self._written = 0
        self._of_host: dict[str, int] = {}
        self._dropped_since = 0
        self.written = 0
        """Events that were given to the sink since the start."""
        self.dropped = 0
        """Events that were left out since the start."""

    def open(self) -> None:
        """Refuse a start whose events would all be lost. Raises ConfigError, one line for the user. Blocks."""
        try:
            self._sink.open()
        except OSError as error:
            key, target = "ottla.audit.log", self._config.ottla_audit_log
            reason = f"cannot be written: {error.strerror}"
            raise ConfigError(key, target, reason, origin=str(self._config.origin_of(key))) from None

    # --- what is noted -----------------------------------------------------------------------------------------------

    def authentication(self, peer: Peer, mechanism: str, *, error: str | None = None, name: str | None = None) -> None:
        """Note a login: of `peer.principal`; or a failed one, of `name` if the client gave one."""
        outcome = "succeeded" if error is None else "failed"
        self.note("authentication", outcome, peer, mechanism=mechanism, error=error, name=name)

    def authorization(
        self,
        context: AuditedContext,
        operation: int,
        resource_type: ResourceType,
        name: str | None,
        *,
        is_allowed: bool,
    ) -> None:
        """Note the check of a right; `name` is None for "any of the type"."""
        if is_allowed:
            if not self._config.ottla_audit_allowed:
                return
        elif operation == AclOperation.DESCRIBE and context.api_key in _LISTING:
            return
        self.note(
            "authorization",
            "allowed" if is_allowed else "denied",
            context.connection,
            client_id=context.client_id,
            api=_api_name(context.api_key),
            operation=AclOperation(operation).name,
            resource_type=resource_type.name,
            resource=name,
        )

    def request(self, context: AuditedContext, request: Request, response: Response) -> None:
        """Note the answer to a request of ADMINISTRATION."""
        code = getattr(response, "error_code", 0)
        self.note(
            "request",
            "failed" if code else "answered",
            context.connection,
            client_id=context.client_id,
            api=_api_name(context.api_key),
            resources=_names_in(request, response),
            error=ErrorCode.of(code).name if code else None,
        )

    def throttled(self, peer: Peer, client_id: str, api_key: int, quota: str, throttle_ms: int) -> None:
        """Note that a client waits, because a quota is used up."""
        api = _api_name(api_key)
        self.note("quota", "throttled", peer, client_id=client_id, api=api, quota=quota, throttle_ms=throttle_ms)

    def connection_refused(self, peer: Peer, reason: str) -> None:
        """Note a connection that was closed before it could send anything."""
        self.note("connection", "refused", peer, error=reason)

    def note(self, event: str, outcome: str, peer: Peer, **what: object) -> None:
        """Queue an event, if there is room. Values that are None are left out."""
        now_ms = self._clock.wall_ms()
        if self._is_closed or not self._may_write(peer.host, now_ms // 1000):
            self.dropped += 1
            self._dropped_since += 1
            return
        if self._dropped_since:
            self._waiting.append({"time": now_ms, "event": "dropped", "count": self._dropped_since})
            self._dropped_since = 0
        self._waiting.append(
            {
                "time": now_ms,
                "event": event,
                "outcome": outcome,
                "principal": str(peer.principal)[:MOST_CHARACTERS],
                "host": peer.host,
                "port": peer.port,
                "listener": peer.endpoint.listener,
                **{key: _cut(value) for key, value in what.items() if value is not None},
            }
        )
        self._plan()

    def close(self) -> None:
        """Write the waiting events, and nothing from now on. Blocks."""
        self._is_closed = True
        while self._waiting:
            events = self._take()
            try:
                self._sink.deliver(self._sink.prepare(events))
            except OSError as error:
                self._failed(events, error)
            else:
                self.written += len(events)

    # --- how it gets there -------------------------------------------------------------------------------------------

    def _may_write(self, host: str, second: int) -> bool:
        if second != self._second:
            self._second, self._written = second, 0
            self._of_host.clear()
        most = self._config.ottla_audit_max_per_second
        of_host = self._of_host.get(host, 0)
        if self._written >= most or of_host >= max(most // SHARE_OF_ONE, 1) or len(self._waiting) >= MAX_WAITING:
            return False
        self._written += 1
        self._of_host[host] = of_host + 1
        return True

    def _take(self) -> list[Event]:
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_AT_ONCE))]

    def _plan(self) -> None:
        if self._waiting and not self._is_busy:
            self._timers.surely_at(self._clock.monotonic_ms() + FLUSH_MS, self._flush)
            self._is_busy = True

    def _flush(self) -> None:
        if self._is_closed:
            return
        events = self._take()

        def prepared(result: object, error: BaseException | None) -> None:
            if error is None:
                try:
                    self._sink.deliver(result)
                except OSError as refusal:
                    error = refusal
            if error is None:
                self.written += len(events)
            else:
                self._failed(events, error)
            self._is_busy = False
            self._plan()

        try:
            self._workers.run(lambda: self._sink.prepare(events), prepared)
        except MemoryError:  # the timer runs again
            self._waiting.extendleft(reversed(events))
            raise

    def _failed(self, events: Sequence[Event], error: BaseException) -> None:
        self.dropped += len(events)
        self._dropped_since += len(events)
        LOG.error("ottla.audit.log: %d events could not be written: %s", len(events), error)


def _api_name(api_key: int) -> str:
    api = REGISTRY.get(ApiKey(api_key)) if api_key in set(ApiKey) else None
    return str(api_key) if api is None else api.name


def _names_in(request: Request, response: Response) -> list[str]:
    """The names in a request of ADMINISTRATION, up to MOST_NAMES; for a new token its owner and its id."""
    names: list[str] = []
    if token_id := getattr(response, "token_id", ""):
        names = [f"{getattr(response, 'principal_type', '')}:{getattr(response, 'principal_name', '')}", token_id]
    for attribute in _LISTS:
        for element in getattr(request, attribute, None) or ():
            if len(names) >= MOST_NAMES:
                return [*names, "..."]
            if isinstance(element, str):
                names.append(element)
            elif hasattr(element, "entity"):
                parts = [f"{part.entity_type}={part.entity_name or '<default>'}" for part in element.entity]
                names.append(",".join(parts))
            elif hasattr(element, "permission_type"):
                names.append(_acl(element))
            else:
                named = next((name for key in _NAMES if (name := getattr(element, key, None)) is not None), "")
                names.append(uuid_to_text(named) if isinstance(named, UUID) else str(named))
    group_id = getattr(request, "group_id", None)
    return names if group_id is None else [group_id, *names]


def _acl(element: Any) -> str:
    """The text of an ACL that is created, or of a filter that deletes ACLs: `ALLOW User:alice WRITE TOPIC orders`."""

    def of(key: str) -> Any:
        return getattr(element, key) if hasattr(element, key) else getattr(element, f"{key}_filter")

    host = "" if of("host") in (None, "*") else f" from {of('host')}"
    pattern = of("pattern_type") if hasattr(element, "pattern_type_filter") else of("resource_pattern_type")
    words = [
        _name_of(PermissionType, element.permission_type),
        (of("principal") or "ANY") + host,
        _name_of(AclOperation, element.operation),
        _name_of(ResourceType, of("resource_type")),
        of("resource_name") or "ANY",
        *([] if pattern == PatternType.LITERAL else [_name_of(PatternType, pattern)]),
    ]
    return " ".join(words)


def _name_of(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if number in set(kind) else str(number)


def _cut(value: object) -> object:
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if isinstance(value, list):
        return [str(each)[:MOST_CHARACTERS] for each in value]
    return value
