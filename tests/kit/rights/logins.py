"""Scenes of the matrix of rights: requests about users, and about delegation tokens."""

from __future__ import annotations

from kit.rights.scene import Ask, Json, scene

OWNER = {"principalType": "User", "principalName": "owner-{s}"}


def _creating(owner: str | None, kind: str = "User", renewer: str = "", renewer_kind: str = "User") -> Json:
    renewers = [{"principalType": renewer_kind, "principalName": renewer}] if renewer else []
    owned = {"ownerPrincipalType": None if owner is None else kind, "ownerPrincipalName": owner}
    return {**owned, "renewers": renewers, "maxLifetimeMs": -1}


MADE = Ask("CREATE_DELEGATION_TOKEN", 3, _creating("owner-{s}"))
OF_ONE = Ask("CREATE_DELEGATION_TOKEN", 3, _creating("of-{u}-{s}"))
LENT_TO_USER = Ask("CREATE_DELEGATION_TOKEN", 3, _creating("lent-{u}-{s}", renewer="{u}"))
"""Their owners have one token each: the secret is found by the owner."""
NO_SECRET = {"hmac": "c2VjcmV0"}
OF_ANOTHER, LENT = {"hmac": "@secret(of-{u}-{s})"}, {"hmac": "@secret(lent-{u}-{s})"}
OTHER_RIGHTS = {
    "described": ("DESCRIBE_TOKENS user *",),
    "creator": ("CREATE_TOKENS user *", "ALTER cluster"),
    "token": ("ALL token *",),
}
"""None of them lets anybody renew a token, or end it."""

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
    scene(
        "CREATE_DELEGATION_TOKEN",
        3,
        _creating("owner-{s}", "Group"),
        "CREATE_TOKENS user User:owner-{s}",
        what="for a group",
        also={"of-the-group": ("CREATE_TOKENS user Group:owner-{s}",), "of-all": ("CREATE_TOKENS user *",)},
    ),
    scene("CREATE_DELEGATION_TOKEN", 3, _creating("", ""), what="for an empty name"),
    scene("CREATE_DELEGATION_TOKEN", 3, _creating("{u}"), what="for oneself, by name"),
    scene("CREATE_DELEGATION_TOKEN", 3, _creating("", renewer="somebody"), what="renewed by another"),
    scene(
        "CREATE_DELEGATION_TOKEN",
        3,
        _creating("", renewer="somebody", renewer_kind="Group"),
        what="renewed by a group",
    ),
    scene("RENEW_DELEGATION_TOKEN", 2, {**NO_SECRET, "renewPeriodMs": -1}),
    scene("EXPIRE_DELEGATION_TOKEN", 2, {**NO_SECRET, "expiryTimePeriodMs": -1}),
    *(
        scene(api, 2, {**secret, period: period_ms}, what=what, before=before, also=OTHER_RIGHTS)
        for secret, before, what in (
            (OF_ANOTHER, (OF_ONE,), "of another"),
            (LENT, (LENT_TO_USER,), "as a renewer"),
        )
        for api, period, period_ms in (
            ("RENEW_DELEGATION_TOKEN", "renewPeriodMs", -1),
            ("EXPIRE_DELEGATION_TOKEN", "expiryTimePeriodMs", 1000),
        )
    ),
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
