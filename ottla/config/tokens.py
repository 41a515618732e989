"""Keys about delegation tokens."""

from __future__ import annotations

from ottla.config.declare import int64, password
from ottla.config.options import Options


class Tokens(Options):
    """Delegation tokens."""

    delegation_token_secret_key = password(
        doc="Key from which the secrets of delegation tokens are made; empty: there are none. With another key the "
        "tokens that exist cannot be used any more.",
    )
    delegation_token_max_lifetime_ms = int64(
        604_800_000, at_least=1, doc="How long a token can be renewed after it was created."
    )
    delegation_token_expiry_time_ms = int64(
        86_400_000, at_least=1, doc="How long a token can be used after it was created or renewed."
    )
    delegation_token_expiry_check_interval_ms = int64(
        3_600_000, at_least=1, doc="How often expired tokens are removed."
    )
