"""The keys that sign tokens: a JWKS (RFC 7517) read from a file or URL, kept, and read again.

A worker reads it, never the broker's thread:
- when the broker starts, so that the log has an error before a user meets it;
- when it is older than `sasl.oauthbearer.jwks.endpoint.refresh.ms`;
- when a token names a key that is not in it (a rotation), but then at most once in
  `sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms`, because strangers can name any key.
While it is read again, logins continue with the present keys. After a failed read, a login reads again after a pause
that doubles. A read takes at most `ottla.sasl.jwks.timeout.ms`, so that no server holds a worker for longer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ottla.bounded_fetch import fetch
from ottla.broker.runtime.pending import Pending

if TYPE_CHECKING:
    from ottla.broker.runtime.workers import Workers
    from ottla.storage.files.clock import Clock

LOG = logging.getLogger("ottla.sasl")

LONGEST_BYTES = 1 << 20
MOST_KEYS = 1_000

ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The accepted signature algorithms by key type: none with a shared secret, and not `none`."""


class VerifyingKey(NamedTuple):
    """A public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


Keys = dict[str | None, VerifyingKey]
"""By key id; if there is only one key, also by None, for tokens that name no key."""


def read_url(url: str, timeout_s: float) -> bytes:
    """The document at a file:, http: or https: URL; a server may take `timeout_s`. Raises OSError, ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        from urllib.request import url2pathname

        with open(url2pathname(parts.path), "rb") as file:
            content = file.read(LONGEST_BYTES + 1)
    else:
        from http.client import HTTPException

        try:
            content = fetch(url, timeout_s, LONGEST_BYTES)
        except HTTPException as error:
            raise ValueError(f"the answer is no HTTP: {error!r}") from None
    if len(content) > LONGEST_BYTES:
        raise ValueError(f"it is longer than {LONGEST_BYTES} bytes")
    return bytes(content)


class Jwks:
    """See the module's text. `read` returns the document and may block for about as many seconds as its argument; it
    raises OSError or ValueError.
    """

    def __init__(
        self,
        url: str,
        workers: Workers,
        clock: Clock,
        *,
        refresh_ms: int = 3_600_000,
        retry_ms: int = 100,
        retry_max_ms: int = 10_000,
        timeout_ms: int = 10_000,
        read: Callable[[str, float], bytes] = read_url,
    ) -> None:
        self._url = url
        self._workers = workers
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_max_ms = retry_max_ms
        self._timeout_ms = timeout_ms
        self._read = read
        self._keys: Keys | None = None
        self._read_at_ms = 0.0
        self._not_before_ms = 0.0
        self._failures = 0
        self._is_reading = False
        self._waiting: list[tuple[str | None, Pending[VerifyingKey]]] = []

    def begin(self) -> None:
        """Read it for the first time. A failure is logged, and a login tries again."""
        self._refresh()

    def find(self, key_id: str | None) -> Pending[VerifyingKey]:
        """The key of that id, immediately if it is known; completed with None if there is none."""
        found: Pending[VerifyingKey] = Pending()
        now_ms = self._clock.monotonic_ms()
        key = None if self._keys is None else self._keys.get(key_id)
        is_old = self._keys is not None and now_ms - self._read_at_ms >= self._refresh_ms
        may_read = now_ms >= self._not_before_ms
        if key is not None:
            found.complete(key)
            if is_old and may_read:
                self._refresh()
        elif may_read or self._is_reading:
            self._waiting.append((key_id, found))
            self._refresh()
        else:
            found.complete(None)
        return found

    def _refresh(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            url, read, timeout_s = self._url, self._read, self._timeout_ms / 1000
            self._workers.run(lambda: parse_jwks(read(url, timeout_s)), self._done)

    def _done(self, keys: Keys | None, error: BaseException | None) -> None:
        self._is_reading = False
        now_ms = self._clock.monotonic_ms()
        if keys is None:
            pause_ms = min(self._retry_max_ms, self._retry_ms << min(self._failures, 20))
            self._failures += 1
            self._not_before_ms = now_ms + pause_ms
            reason = getattr(error, "strerror", None) or error
            LOG.error("sasl.oauthbearer.jwks.endpoint.url=%s cannot be read: %s", _shown(self._url), reason)
        else:
            self._failures = 0
            self._keys, self._read_at_ms = keys, now_ms
            self._not_before_ms = now_ms + min(self._retry_max_ms, self._refresh_ms)
        waiting, self._waiting = self._waiting, []
        for key_id, found in waiting:
            found.complete(None if self._keys is None else self._keys.get(key_id))


def parse_jwks(document: bytes) -> Keys:
    """The keys of a JWKS that verify signatures. Raises ValueError if it is no JWKS; single keys that cannot be used,
    such as those for encryption or of other algorithms, are skipped.
    """
    import jwt

    try:
        content = json.loads(document)
        entries = content["keys"]
        if not isinstance(entries, list):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError('it is no JWKS: {"keys": [...]}') from None
    keys: Keys = {}
    for entry in entries[:MOST_KEYS]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        algorithms = ALGORITHMS.get(str(entry.get("kty")), ())
        if "alg" in entry:
            algorithms = tuple(one for one in algorithms if one == entry["alg"])
        if not algorithms:
            continue  # also symmetric keys: every reader of the JWKS could sign with them
        try:
            key = VerifyingKey(jwt.PyJWK(entry, algorithms[0]).key, algorithms)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        key_id = entry.get("kid")
        keys[key_id if isinstance(key_id, str) else None] = key
    if not keys:
        raise ValueError("it has no key that verifies signatures")
    if len(keys) == 1:
        keys[None] = next(iter(keys.values()))
    return keys


def _shown(url: str) -> str:
    """The URL without the secrets that it may contain."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
