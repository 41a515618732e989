"""The delegation tokens of this broker: their secrets, and how they are created, changed and removed.

A token is in the metadata (`metadata/tokens.py`). Its secret is the HMAC-SHA-512 of its id with the key
`delegation.token.secret.key`. For SCRAM the id is the user name, and the secret in base64 is the password. So the key
has to stay the same over restarts, also in a Kafka broker that takes the directory over.

All calls on the broker's thread. Follows Kafka's `DelegationTokenManager` and `DelegationTokenControlManager`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metadata.token_plans import (
    LAST_MS,
    MOST_EXPIRED,
    TokenPlan,
    plan_creation,
    plan_expiry,
    plan_removal_of_expired,
    plan_renewal,
)
from ottla.broker.metadata.tokens import DelegationToken
from ottla.broker.principal import ANONYMOUS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.scram import LEAST_ITERATIONS, keys_of, new_salt, salted_password
from ottla.storage.formats.kafka_uuid import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.broker.catalog.settings import ChangingCatalog
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.peer import Peer
    from ottla.broker.principal import Principal
    from ottla.config.broker import BrokerConfig
    from ottla.protocol.stored.metadata import MetadataRecord
    from ottla.storage.files.clock import Clock

logger = logging.getLogger(__name__)

Done = Callable[[DelegationToken | KafkaError], None]
"""Called once: with the token when the change is synced, or with the error."""
MAX_CREDENTIALS = 1_000
"""The most SCRAM credentials of tokens that are kept: each takes some milliseconds to compute."""


class TokenCredential(NamedTuple):
    """The SCRAM credential of a token (`ottla.scram`), with the token, whose owner is the user after the login."""

    token: DelegationToken
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationTokens:
    """See the module's text."""

    def __init__(
        self, config: BrokerConfig, catalog: ChangingCatalog, clock: Clock, deletion_ms: Callable[[], int]
    ) -> None:
        """`deletion_ms` returns the time by which expired tokens are old enough to be removed (`clock_trust.py`)."""
        self._config = config
        self._catalog = catalog
        self._clock = clock
        self._deletion_ms = deletion_ms
        self._key = config.delegation_token_secret_key.encode()
        self._ids: dict[bytes, str] | None = None
        """The id of each token by its secret; None until first needed."""
        self._credentials: dict[tuple[str, str], TokenCredential] = {}
        self._is_removing = False

    @property
    def is_enabled(self) -> bool:
        """Whether this broker has a key for its tokens."""
        return bool(self._key)

    def secret_of(self, token: DelegationToken) -> bytes:
        """The HMAC that the holder of the token has to send."""
        return hmac.digest(self._key, token.token_id.encode(), hashlib.sha512)

    def tokens(self) -> Iterable[DelegationToken]:
        """All tokens, also expired ones that are not removed yet."""
        return self._catalog.image.tokens.values()

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """The credential for a login by this token, if it is valid. Kafka's `DelegationTokenCache.credential`."""
        token = self._catalog.image.tokens.get(token_id)
        if token is None or not self.is_enabled or token.is_expired(self._clock.wall_ms()):
            return None
        known = self._credentials.get((token_id, mechanism))
        if known is None:
            password = base64.b64encode(self.secret_of(token)).decode()
            salt = new_salt()
            keys = keys_of(mechanism, salted_password(mechanism, password, salt, LEAST_ITERATIONS))
            known = TokenCredential(token, salt, keys.stored_key, keys.server_key, LEAST_ITERATIONS)
            if len(self._credentials) >= MAX_CREDENTIALS:
                self._credentials.clear()
            self._credentials[token_id, mechanism] = known
        return known._replace(token=token)

    # --- changes -----------------------------------------------------------------------------------------------------

    def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], lifetime_ms: int, done: Done
    ) -> None:
        """Create a token that lives for `lifetime_ms`; the broker's limit is the maximum and the default."""
        if not self._may_change(done):
            return
        now_ms, most_ms = int(self._clock.wall_ms()), self._config.delegation_token_max_lifetime_ms
        max_ms = min(LAST_MS, now_ms + (min(most_ms, lifetime_ms) if lifetime_ms > 0 else most_ms))
        token = DelegationToken(
            uuid_to_text(random_uuid()),
            owner,
            requester,
            tuple(renewers),
            now_ms,
            min(max_ms, now_ms + self._config.delegation_token_expiry_time_ms),
            max_ms,
        )
        self._change(lambda image: plan_creation(image, token), done)

    def renew(self, secret: bytes, by: Principal, period_ms: int, done: Done) -> None:
        """Extend the life of a token by `period_ms`; the broker's expiry time is the maximum and the default."""
        most_ms = self._config.delegation_token_expiry_time_ms
        period_ms = min(most_ms, period_ms) if period_ms > 0 else most_ms
        self._change_known(secret, by, period_ms, plan_renewal, done)

    def expire(self, secret: bytes, by: Principal, period_ms: int, done: Done) -> None:
        """Let a token expire in `period_ms`; immediately if that is negative."""
        self._change_known(secret, by, period_ms, plan_expiry, done)

    def remove_expired(self) -> bool:
        """Remove the expired tokens, some in each change, unless that is under way. A step of a chore; returns False:
        further changes follow when this one is synced, and not in the next turns of the loop.

        While the wall clock is suspect, tokens that it calls expired are refused, but not removed.
        """
        now_ms = self._deletion_ms()
        expired = 0 if self._is_removing else sum(token.is_expired(now_ms) for token in self.tokens())
        if not expired:
            return False
        self._is_removing = True

        def done(error: KafkaError | None) -> None:
            self._is_removing = False
            self._forget()
            if error is not None:
                logger.warning("expired delegation tokens could not be removed: %s", error)
            elif expired > MOST_EXPIRED:
                self.remove_expired()

        self._catalog.change(lambda image: plan_removal_of_expired(image, now_ms), done)
        return False

    def _change_known(
        self,
        secret: bytes,
        by: Principal,
        period_ms: int,
        plan: Callable[[MetadataImage, str, Principal, int, int], TokenPlan],
        done: Done,
    ) -> None:
        if not self._may_change(done):
            return
        token_id = self._id_of(secret)
        if token_id is None:
            done(KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND))
            return
        now_ms = int(self._clock.wall_ms())
        self._change(lambda image: plan(image, token_id, by, period_ms, now_ms), done)

    def _may_change(self, done: Done) -> bool:
        if not self.is_enabled:
            done(KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
        return self.is_enabled

    def _change(self, plan_token: Callable[[MetadataImage], TokenPlan], done: Done) -> None:
        planned: TokenPlan | None = None

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan_token(image)
            return planned.records

        def finish(error: KafkaError | None) -> None:
            self._forget()
            if error is not None:
                done(error)
            else:
                assert planned is not None
                done(planned.token)

        self._catalog.change(plan, finish)

    def _id_of(self, secret: bytes) -> str | None:
        if self._ids is None:
            self._ids = {self.secret_of(token): token.token_id for token in self.tokens()}
        return self._ids.get(secret)

    def _forget(self) -> None:
        """Update the caches: tokens have been added or removed."""
        tokens, ids = self._catalog.image.tokens, self._ids
        if ids is not None:
            known = set(ids.values())
            for token_id in tokens.keys() - known:
                ids[self.secret_of(tokens[token_id])] = token_id
            if known - tokens.keys():
                self._ids = {secret: token_id for secret, token_id in ids.items() if token_id in tokens}
        for key in [key for key in self._credentials if key[0] not in tokens]:
            del self._credentials[key]


def may_ask(peer: Peer) -> bool:
    """Whether the client may ask for tokens: authenticated, and not by a token (Kafka's `allowTokenRequests`)."""
    return peer.principal != ANONYMOUS and not peer.is_by_token
