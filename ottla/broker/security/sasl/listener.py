"""The SASL side of one listener: the mechanisms that it offers, with their users and limits.

Created once for each SASL listener when the broker starts; `open` begins the authentication of one connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.security.sasl.authentication import Authentication, Limits
from ottla.config.logins import plain_passwords
from ottla.scram import NUMBERS

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.on_demand import OnDemand
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.workers import Workers
    from ottla.broker.security.sasl.jwks import Jwks
    from ottla.broker.security.sasl.mechanism import MechanismServer
    from ottla.broker.security.sasl.scram import ScramCredential
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens
    from ottla.config.broker import BrokerConfig
    from ottla.config.on_listener import ListenerConfig
    from ottla.storage.files.clock import Clock


class SaslListener:
    """See the module's text. `mechanisms`: factories of the broker's side of a login, by the name of the mechanism;
    `beginnings`: what they do when the broker starts.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], MechanismServer]],
        limits: Limits,
        beginnings: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.mechanisms = mechanisms
        self.limits = limits
        self._beginnings = beginnings

    def begin(self) -> None:
        """Read what logins will need: the broker has started."""
        for step in self._beginnings:
            step()

    def open(self, peer: Peer, timers: Timers, clock: Clock) -> Authentication:
        """The authentication of a new connection."""
        return Authentication(self.mechanisms, self.limits, peer, timers, clock)


class Means(NamedTuple):
    """The resources of mechanisms: the users of SCRAM, threads that read keys, the time, delegation tokens."""

    catalog: Catalog
    workers: Workers
    clock: Clock
    tokens: OnDemand[DelegationTokens]


def sasl_listener(config: BrokerConfig, name: str, means: Means) -> SaslListener:
    """The listener of this name. Raises ConfigError for keys that the start has not checked yet."""
    own = config.on_listener(name)
    mechanisms: dict[str, Callable[[], MechanismServer]] = {}
    beginnings: list[Callable[[], None]] = []
    for mechanism in own.sasl_enabled_mechanisms:
        mechanisms[mechanism] = _maker(config, name, mechanism, means, beginnings)
    return SaslListener(
        mechanisms,
        Limits(
            max_receive_bytes=own.sasl_server_max_receive_size,
            failure_delay_ms=config.connection_failed_authentication_delay_ms,
            timeout_ms=config.ottla_handshake_timeout_ms,
            max_session_ms={
                mechanism: config.on_listener(name, mechanism).connections_max_reauth_ms for mechanism in mechanisms
            },
        ),
        beginnings,
    )


def _maker(
    config: BrokerConfig, name: str, mechanism: str, means: Means, beginnings: list[Callable[[], None]]
) -> Callable[[], MechanismServer]:
    if mechanism == "PLAIN":
        from ottla.broker.security.sasl.plain import PlainServer, PlainUsers

        return partial(PlainServer, PlainUsers(plain_passwords(config, name)))
    if mechanism == "OAUTHBEARER":
        own = config.on_listener(name, mechanism)
        jwks, make = _oauthbearer(own, means, config.ottla_sasl_jwks_timeout_ms)
        beginnings.append(jwks.begin)
        return make
    from ottla.broker.security.sasl.scram import MadeUp, ScramServer

    return partial(ScramServer, mechanism, partial(_find_scram, means), MadeUp())


def _oauthbearer(own: ListenerConfig, means: Means, timeout_ms: int) -> tuple[Jwks, Callable[[], MechanismServer]]:
    from ottla.broker.security.sasl.jwks import Jwks
    from ottla.broker.security.sasl.oauthbearer import Expected, OAuthBearerServer

    jwks = Jwks(
        own.sasl_oauthbearer_jwks_endpoint_url,
        means.workers,
        means.clock,
        refresh_ms=own.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        retry_ms=own.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        retry_max_ms=own.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        timeout_ms=timeout_ms,
    )
    expected = Expected(
        issuer=own.sasl_oauthbearer_expected_issuer,
        audience=own.sasl_oauthbearer_expected_audience,
        clock_skew_s=own.sasl_oauthbearer_clock_skew_seconds,
        subject_claim=own.sasl_oauthbearer_sub_claim_name,
        scope_claim=own.sasl_oauthbearer_scope_claim_name,
    )
    return jwks, partial(OAuthBearerServer, jwks, expected, means.clock)


def _find_scram(means: Means, mechanism: str, name: str, is_token: bool) -> ScramCredential | None:
    from ottla.broker.security.sasl.scram import ScramCredential

    if is_token:
        found = means.tokens.get().credential(mechanism, name)
        if found is None:
            return None
        token, salt, stored_key, server_key, iterations = found
        return ScramCredential(
            salt, stored_key, server_key, iterations, token.owner.name, expires_at_ms=token.expiry_ms, is_token=True
        )
    record = means.catalog.image.scram_credentials.get((NUMBERS[mechanism], name))
    if record is None:
        return None
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations, name)
