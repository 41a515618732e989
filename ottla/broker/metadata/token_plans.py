"""Plans that create, renew and expire delegation tokens.

Pure functions of the image and a time. The rules are Kafka's (`DelegationTokenControlManager`). Difference: the numbers
of tokens and renewers and the length of names are bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.metadata.tokens import DelegationToken, token_record
from ottla.broker.principal import Principal
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_TOKENS: Final = 10_000
"""The most tokens of all owners: each client that has authenticated may create tokens."""
MAX_RENEWERS: Final = 100
MAX_NAME_BYTES: Final = 1_000
"""The longest principal, with its type."""
MOST_EXPIRED: Final = 1_000
"""Tokens that one step of the chore removes."""
LAST_MS: Final = (1 << 63) - 1


class TokenPlan(NamedTuple):
    """The token after the change, and the records of the change."""

    token: DelegationToken
    records: Sequence[MetadataRecord]


def plan_creation(image: MetadataImage, token: DelegationToken) -> TokenPlan:
    """Create a token. Raises KafkaError if there are too many, or it is too large."""
    if len(image.tokens) >= MAX_TOKENS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {MAX_TOKENS} delegation tokens; expire some")
    if len(token.renewers) > MAX_RENEWERS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"a token has more than {MAX_RENEWERS} renewers")
    for principal in (token.owner, token.requester, *token.renewers):
        if len(str(principal).encode()) > MAX_NAME_BYTES:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"a principal has more than {MAX_NAME_BYTES} bytes")
    return TokenPlan(token, [token_record(token)])


def plan_renewal(image: MetadataImage, token_id: str, by: Principal, period_ms: int, now_ms: int) -> TokenPlan:
    """Let a token expire `period_ms` from now, at its end of life at the latest. Raises KafkaError."""
    token = _find(image, token_id)
    _check_time(token, now_ms)
    _check_renewer(token, by)
    return _expiring(token, min(token.max_ms, now_ms + period_ms))


def plan_expiry(image: MetadataImage, token_id: str, by: Principal, period_ms: int, now_ms: int) -> TokenPlan:
    """Let a token expire `period_ms` from now, or remove it immediately if that is negative. Raises KafkaError."""
    token = _find(image, token_id)
    _check_renewer(token, by)
    if period_ms < 0:
        return TokenPlan(token._replace(expiry_ms=now_ms), [RemoveDelegationTokenRecord(token_id=token_id)])
    _check_time(token, now_ms)
    return _expiring(token, min(token.max_ms, now_ms + period_ms, LAST_MS))


def plan_removal_of_expired(image: MetadataImage, now_ms: int) -> list[MetadataRecord]:
    """Remove some of the tokens that have expired."""
    expired = [token.token_id for token in image.tokens.values() if token.is_expired(now_ms)]
    return [RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired[:MOST_EXPIRED]]


def _find(image: MetadataImage, token_id: str) -> DelegationToken:
    token = image.tokens.get(token_id)
    if token is None:  # another client's change came first
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_time(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(token: DelegationToken, by: Principal) -> None:
    if not token.is_of(by):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expiring(token: DelegationToken, expiry_ms: int) -> TokenPlan:
    changed = token._replace(expiry_ms=expiry_ms)
    return TokenPlan(changed, [token_record(changed)])
