"""Scenes of the matrix of rights: requests about users, and about delegation tokens."""

from __future__ import annotations

from kit.rights.scene import Ask, Json, scene

OWNER = {"principalType": "User", "principalName": "owner-{s}"}


def _creating(owner: str | None) -> Json:
    kind = None if owner is None else "User"
    return {"ownerPrincipalType": kind, "ownerPrincipalName": owner, "renewers": [], "maxLifetimeMs": -1}


MADE = Ask("CREATE_DELEGATION_TOKEN", 3, _creating("owner-{s}"))
NO_SECRET = {"hmac": "c2VjcmV0"}

SCENES = [
    scene("DESCRIBE_USER_SCRAM_CREDENTIALS", 0, {"users": [{"name": "nobody"}]}, "DESCRIBE cluster"),
    scene(
        "ALTER_USER_SCRAM_CREDENTIALS",
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}]},
        "ALTER cluster",
        also={"user": ("CREATE_TOKENS user User:nobody",)},
    ),
    scene("CREATE_DELEGATION_TOKEN", 3, _creating(None), what="for oneself"),
    scene(
        "CREATE_DELEGATION_TOKEN",
        3,
        _creating("owner-{s}"),
        "CREATE_TOKENS user User:owner-{s}",
        what="for another",
        also={"cluster": ("ALTER cluster", "CREATE cluster"), "describe": ("DESCRIBE_TOKENS user User:owner-{s}",)},
    ),
    scene("RENEW_DELEGATION_TOKEN", 2, {**NO_SECRET, "renewPeriodMs": -1}),
    scene("EXPIRE_DELEGATION_TOKEN", 2, {**NO_SECRET, "expiryTimePeriodMs": -1}),
    scene(
        "DESCRIBE_DELEGATION_TOKEN",
        3,
        {"owners": [OWNER]},
        "DESCRIBE_TOKENS user User:owner-{s}",
        before=(MADE,),
        also={"create": ("CREATE_TOKENS user User:owner-{s}",), "any-token": ("DESCRIBE token *",)},
    ),
    scene("DESCRIBE_DELEGATION_TOKEN", 3, {"owners": []}, "DESCRIBE_TOKENS user User:*", what="of nobody"),
]
