"""Signed tokens, and the JWKS that verifies them: what an issuer of OAUTHBEARER's tokens has."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.test", "kafka"


class Issuer:
    """Signs by one key; `jwks` is the document that an endpoint would give."""

    def __init__(
        self, key_id: str | None = "one", algorithm: str = "RS256", *, private_bytes: bytes | None = None
    ) -> None:
        """`private_bytes`: the key of an EdDSA issuer that is the same in each process."""
        self.key_id = key_id
        self.algorithm = algorithm
        if algorithm.startswith("ES"):
            self._key: Any = ec.generate_private_key(ec.SECP256R1())
            public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        elif algorithm == "EdDSA":
            key = ed25519.Ed25519PrivateKey
            self._key = key.generate() if private_bytes is None else key.from_private_bytes(private_bytes)
            public = json.loads(OKPAlgorithm.to_jwk(self._key.public_key()))
        else:
            self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        self.entry = public | ({} if key_id is None else {"kid": key_id}) | {"use": "sig"}

    @property
    def jwks(self) -> bytes:
        return jwks_of(self)

    def has_signed(self, token: bytes) -> bool:
        """Whether the token is one of this issuer, of whatever time."""
        never = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False}
        try:
            jwt.decode(token, self._key.public_key(), algorithms=[self.algorithm], options=never)  # type: ignore[arg-type]
        except (jwt.PyJWTError, ValueError):
            return False
        return True

    def token(self, now_s: float, *, lifetime_s: float = 600, key_id: str | None = None, **claims: object) -> str:
        """A token of `alice`; a claim of None is left out."""
        given = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": int(now_s), "exp": int(now_s + lifetime_s)}
        content = {claim: value for claim, value in (given | claims).items() if value is not None}
        headers = {"kid": key_id or self.key_id} if key_id or self.key_id else None
        return jwt.encode(content, self._key, algorithm=self.algorithm, headers=headers)


@functools.cache
def jwks_url(issuer: Issuer) -> str:
    """A file: URL of its document, which goes with this process."""
    file = tempfile.NamedTemporaryFile(suffix=".json")  # noqa: SIM115  # it is kept by the cache below
    file.write(issuer.jwks)
    file.flush()
    _FILES.append(file)
    return Path(file.name).as_uri()


_FILES: list[Any] = []


def jwks_of(*issuers: Issuer) -> bytes:
    """The document with all their keys."""
    return json.dumps({"keys": [issuer.entry for issuer in issuers]}).encode()
