"""A delegation token of the metadata, and its record. Pure. Kafka's `DelegationTokenData`, `TokenInformation`.

The secret of a token is not in the metadata: it is computed from the token's id and the broker's secret key.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.principal import Principal, parse_principal
from ottla.protocol.stored.metadata import DelegationTokenRecord


class DelegationToken(NamedTuple):
    """A token: a client with its secret acts as `owner`. Times in ms since 1970.

    `requester` has created it; `owner` and `renewers` may change its expiry, up to `max_ms`.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether no client may use it any more."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms

    def is_of(self, principal: Principal) -> bool:
        """Whether this principal owns or may renew it."""
        return principal == self.owner or principal in self.renewers


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """The token in a record. Raises ValueError for an invalid principal."""
    return DelegationToken(
        record.token_id,
        parse_principal(record.owner),
        parse_principal(record.requester),
        tuple(map(parse_principal, record.renewers)),
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
    )


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    """The record that adds a token, or changes its expiry."""
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(one) for one in token.renewers],
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )
