"""The `Context` of a request: what a handler may know besides its body, and through it the broker.

Handlers never see a transport, only the `Peer` (`peer.py`).
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.broker.peer import Peer
from ottla.broker.runtime.steps import in_steps
from ottla.broker.services import Services
from ottla.protocol.acls import CLUSTER_NAME
from ottla.protocol.api import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.fetch.fetch_sessions import FetchSessions
    from ottla.broker.fetch.parked_fetches import ParkedFetches
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.profiles.profiles import AdvertisedApi, Profile
    from ottla.broker.runtime.on_demand import OnDemand
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.security.authorizer import Authorizer
    from ottla.broker.security.quotas.request_quota import RequestQuota
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.protocol.acls import AclOperation, ResourceType
    from ottla.protocol.message import Response

R = TypeVar("R")


class ApiServices(Services, eq=False, frozen=True):
    """The broker's services for handlers, pages and figures: with the parts that are built on the services themselves.

    Attributes:
        fetch_sessions: what consumers fetch, remembered between their requests.
        parked_fetches: waiting requests of consumers that are answered from templates.
        groups: the group coordinator, created on first use: its code is a fifth of what a start would import.
        transactions: the transaction coordinator, also created on first use.
        tokens: the delegation tokens, created on first use.
        authorizer: knows the rights of clients; None if every client may do everything.
        profile: the Kafka release whose API versions are shown to clients.
        advertised_apis: the answer of ApiVersions, in the profile's versions.
    """

    fetch_sessions: FetchSessions
    parked_fetches: ParkedFetches
    groups: OnDemand[GroupCoordinator]
    transactions: OnDemand[TransactionCoordinator]
    tokens: OnDemand[DelegationTokens]
    authorizer: Authorizer | None
    profile: Profile
    advertised_apis: list[AdvertisedApi]


class RefusedElements(Protocol):
    """Elements of a request that were refused individually (`requests/rights.py`)."""

    def beside(self, response: Response) -> Response:
        """The response to the other elements, with the answers to these added."""


class Context:
    """One request's surroundings: version, client id, connection, services, and the wall time at which it started."""

    __slots__ = (
        "_step_began_ns",
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "lacks_rights",
        "now_ms",
        "quota",
        "refused",
        "services",
    )

    def __init__(
        self,
        services: ApiServices,
        api_key: int,
        api_version: int,
        *,
        client_id: str | None = None,
        correlation_id: int = 0,
        connection: Peer | None = None,
        now_ms: int | None = None,
    ) -> None:
        self.services = services
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.correlation_id = correlation_id
        self.connection = Peer() if connection is None else connection
        self.now_ms = services.clock.wall_ms() if now_ms is None else now_ms
        self.lacks_rights = False
        """Whether a right was denied: no template may be learnt from such an answer, which also depends on rights."""
        self.refused: RefusedElements | None = None
        """The elements of the request that the gate has removed, and answers itself."""
        self.quota: RequestQuota | None = None
        """The quota to which the request is charged; None if its client is under no quota."""
        self._step_began_ns = 0

    def in_steps(self, steps: Steps[R | Pending[R]] | Steps[R]) -> R | Pending[R]:
        """The result of work that may be long: immediately after a single step, else as a `Pending`."""
        return in_steps(steps, self)

    def later(self, step: Callable[[], None]) -> None:
        """Run `step` when other requests have had their turn."""
        self.services.timers.at(self.services.clock.monotonic_ms(), step)

    def begin_step(self) -> None:
        """Start charging time to the client: the request has the broker's thread again."""
        if self.quota is not None:
            self.quota.go_on()
        self._step_began_ns = perf_counter_ns()

    def end_step(self) -> None:
        """Stop charging time: the request leaves the thread."""
        held_us = (perf_counter_ns() - self._step_began_ns) // 1000
        self.services.metrics.hold(REGISTRY[self.api_key].name, held_us)
        if self.quota is not None:
            self.quota.hold()

    def charge(self, partitions: int) -> None:
        """Charge partitions that are created or deleted to the client's quota (KIP-599). Raises KafkaError if it is
        used up and the version of the request has that error.
        """
        if self.quota is not None:
            self.quota.mutated(partitions)

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this with the resource of that name, by default with the cluster."""
        authorizer = self.services.authorizer
        is_allowed = authorizer is None or authorizer.is_allowed(self.connection, operation, resource_type, name)
        if not is_allowed:
            self.lacks_rights = True
        audit = self.services.audit
        if audit is not None:
            audit.authorization(self, operation, resource_type, name, is_allowed=is_allowed)
        return is_allowed

    def has(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """As `may`, but a missing right is no denial: another right is sufficient, or an entry is left out of a list
        that the client did not request by name. The audit log does not record it (Kafka's `logIfDenied=false`).
        """
        authorizer = self.services.authorizer
        if authorizer is None or authorizer.is_allowed(self.connection, operation, resource_type, name):
            return True
        self.lacks_rights = True
        return False

    def may_somewhere(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with at least one resource of the type."""
        authorizer = self.services.authorizer
        is_allowed = authorizer is None or authorizer.is_allowed_somewhere(self.connection, operation, resource_type)
        if not is_allowed:
            self.lacks_rights = True
        audit = self.services.audit
        if audit is not None:
            audit.authorization(self, operation, resource_type, None, is_allowed=is_allowed)
        return is_allowed

    def operations(self, operations: int, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations among these that the client may do with the resource: bit sets of AclOperation (KIP-430)."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return operations
        return authorizer.allowed_operations(self.connection, operations, resource_type, name)
