"""Signed tokens, and the JWKS that verifies them: what an issuer of OAUTHBEARER's tokens has."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.test", "kafka"


class Issuer:
    """Signs by one key; `jwks` is the document that an endpoint would give."""

    def __init__(self, key_id: str | None = "one", algorithm: str = "RS256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        if algorithm.startswith("ES"):
            self._key: Any = ec.generate_private_key(ec.SECP256R1())
            public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        elif algorithm == "EdDSA":
            self._key = ed25519.Ed25519PrivateKey.generate()
            public = json.loads(OKPAlgorithm.to_jwk(self._key.public_key()))
        else:
            self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        self.entry = public | ({} if key_id is None else {"kid": key_id}) | {"use": "sig"}

    @property
    def jwks(self) -> bytes:
        return jwks_of(self)

    def token(self, now_s: float, *, lifetime_s: float = 600, key_id: str | None = None, **claims: object) -> str:
        """A token of `alice`; a claim of None is left out."""
        given = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": int(now_s), "exp": int(now_s + lifetime_s)}
        content = {claim: value for claim, value in (given | claims).items() if value is not None}
        headers = {"kid": key_id or self.key_id} if key_id or self.key_id else None
        return jwt.encode(content, self._key, algorithm=self.algorithm, headers=headers)


def jwks_of(*issuers: Issuer) -> bytes:
    """The document with all their keys."""
    return json.dumps({"keys": [issuer.entry for issuer in issuers]}).encode()
