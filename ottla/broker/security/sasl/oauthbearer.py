"""OAUTHBEARER (RFC 7628): the client sends a token, a JWT (RFC 7519), signed by an issuer that the broker trusts.

    C: n,,^Aauth=Bearer TOKEN^A^A          S: (nothing: it is valid)
                                           S: {"status":"invalid_token"}      C: ^A      then the login has failed

A token needs a signature by a key of the JWKS (`jwks.py`) with one of `ALGORITHMS`; `exp` and `iat`; the configured
issuer and audience, if any; a subject. The session ends with the token. `alg: none` and symmetric algorithms are always
refused: Kafka's default, a validator that accepts unsigned tokens, does not exist here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.runtime.pending import Pending
from ottla.broker.security.sasl.jwks import ALGORITHMS
from ottla.broker.security.sasl.mechanism import SaslFailure, Step

if TYPE_CHECKING:
    from ottla.broker.security.sasl.jwks import Jwks, VerifyingKey
    from ottla.storage.files.clock import Clock

LONGEST_TOKEN_BYTES = 64 << 10
INVALID_TOKEN = '{"status":"invalid_token"}'

_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"bearer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
_SEPARATOR = b"\x01"


class Expected(NamedTuple):
    """The required contents of a token; an empty issuer or audience accepts any."""

    issuer: str = ""
    audience: tuple[str, ...] = ()
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class _Invalid(Exception):
    """The token is invalid; the text is for the log, and contains nothing of the token's signature."""


class OAuthBearerServer:
    """One login (Kafka's OAuthBearerSaslServer and its validator)."""

    def __init__(self, jwks: Jwks, expected: Expected, clock: Clock) -> None:
        self._jwks = jwks
        self._expected = expected
        self._clock = clock
        self._problem: str | None = None

    def evaluate(self, token: bytes) -> Step | Pending[Step]:
        """Answer the first message, or the client's acknowledgement of an error."""
        if self._problem is not None:
            raise SaslFailure(self._problem, INVALID_TOKEN)
        authorization_id, bearer = _first_message(token)
        try:
            key_id = _key_id(bearer)
        except _Invalid as invalid:
            return self._refuse(str(invalid))
        found = self._jwks.find(key_id)
        if found.done:
            return self._check(bearer, authorization_id, found.response)
        step: Pending[Step] = Pending()
        step.on_cancel(found.cancel)

        def known(done: Pending[VerifyingKey]) -> None:
            try:
                step.complete(self._check(bearer, authorization_id, done.response))
            except Exception as error:  # it belongs to the login
                step.fail(error)

        found.then(known)
        return step

    def _check(self, bearer: str, authorization_id: str | None, key: VerifyingKey | None) -> Step:
        if key is None:
            return self._refuse("it is signed by a key that is not in the JWKS, or the JWKS cannot be read")
        try:
            user, expires_at_ms = self._claims(bearer, key)
        except _Invalid as invalid:
            return self._refuse(str(invalid))
        if authorization_id is not None and authorization_id != user:
            text = "Authentication failed: Client requested an authorization id that is different from the token's"
            raise SaslFailure(text, f"{text} principal name")
        return Step(b"", user, expires_at_ms)

    def _claims(self, bearer: str, key: VerifyingKey) -> tuple[str, float]:
        """The user of the token, and when it expires. Raises _Invalid."""
        import jwt

        expected = self._expected
        try:
            claims = jwt.decode(
                bearer,
                key.key,
                algorithms=list(key.algorithms),
                audience=list(expected.audience) or None,
                issuer=expected.issuer or None,
                options={
                    "require": ["exp", "iat"],
                    "verify_aud": bool(expected.audience),
                    "verify_iss": bool(expected.issuer),
                    # Checked below, by the broker's clock.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _Invalid(f"{type(error).__name__}: {error}") from None
        now_s, skew_s = self._clock.wall_ms() / 1000, expected.clock_skew_s
        expires_s = _number(claims, "exp")
        _number(claims, "iat")
        if now_s - skew_s >= expires_s:
            raise _Invalid("it has expired")
        if "nbf" in claims and now_s + skew_s < _number(claims, "nbf"):
            raise _Invalid("it is not valid yet")
        scope = claims.get(expected.scope_claim, "")
        if not isinstance(scope, str) and not (
            isinstance(scope, list) and all(isinstance(one, str) and one.strip() for one in scope)
        ):
            raise _Invalid(f"its claim {expected.scope_claim} is no list of texts")
        user = claims.get(expected.subject_claim)
        if not isinstance(user, str) or not user.strip():
            raise _Invalid(f"it has no claim {expected.subject_claim}")
        return user.strip(), expires_s * 1000

    def _refuse(self, problem: str) -> Step:
        """Answer as RFC 7628 requires: the client acknowledges the error, and then the login has failed."""
        self._problem = f"invalid token: {problem[:200]}"
        return Step(INVALID_TOKEN.encode())


def _first_message(message: bytes) -> tuple[str | None, str]:
    """The authorization id, if there is one, and the token. Raises SaslFailure."""
    if len(message) > LONGEST_TOKEN_BYTES:
        raise SaslFailure(f"a token of {len(message)} bytes")
    match = _FIRST.fullmatch(message.decode("latin-1"))
    if match is None:
        raise SaslFailure("a malformed first OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise SaslFailure("a first OAUTHBEARER message without a bearer token")
    authorization_id = match["authorization_id"]
    if authorization_id is not None:
        authorization_id = authorization_id.replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth["token"]


def _key_id(bearer: str) -> str | None:
    """The id of the key that the token names as its signer. Raises _Invalid for anything but a signed token."""
    import jwt

    try:
        header = jwt.get_unverified_header(bearer)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise _Invalid("it is no signed JWT") from None
    algorithm = header.get("alg")
    if not any(algorithm in of_type for of_type in ALGORITHMS.values()):
        raise _Invalid(f"its algorithm is {str(algorithm)[:20]!r}")
    key_id = header.get("kid")
    return key_id if isinstance(key_id, str) else None


def _number(claims: dict[str, Any], claim: str) -> float:
    value = claims.get(claim)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise _Invalid(f"its claim {claim} is no time")
    return float(value)
