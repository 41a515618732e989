"""An Admin's results about delegation tokens."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token: a client with its secret acts as `owner`. Principals are texts as `User:alice`, times ms since 1970.

    `requester` created it (empty from a broker before Kafka 3.3). `renewers` may renew and expire it, like its owner.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """The password for a login by SCRAM; the user's name is the token's id, with `tokenauth=true`."""
        return base64.b64encode(self.hmac).decode()
