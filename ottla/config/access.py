"""Keys about access control and quotas."""

from __future__ import annotations

import re
from typing import Final

from ottla.config.declare import boolean, int32, string, words
from ottla.config.options import Options

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OLDER_AUTHORIZERS: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def _authorizer(text: str) -> str:
    if text in _OLDER_AUTHORIZERS:
        raise ValueError(f"kept its ACLs in ZooKeeper; the authorizer now is {STANDARD_AUTHORIZER}")
    if text not in ("", STANDARD_AUTHORIZER):
        raise ValueError(f"must be {STANDARD_AUTHORIZER}, or empty for none")
    return text


def _principals(text: str) -> str:
    """Check a list of principals. Raises ValueError with what is wrong."""
    split_principals(text)
    return text


def split_principals(text: str) -> list[str]:
    """The principals of `super.users`, each as `Type:name`. Raises ValueError for text that is no principal."""
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{principal!r} must be a principal, as User:alice; several are separated by semicolons")
    return principals


def _audit_log(text: str) -> str:
    """Check the destination of the audit log. Raises ValueError with what is wrong."""
    kind, colon, name = text.partition(":")
    if colon and kind == "topic" and (not _TOPIC.fullmatch(name) or name.startswith("__")):
        raise ValueError(f"{name!r} is not the name of a topic that clients may have")
    return text


class Access(Options):
    """Access control and quotas."""

    authorizer_class_name = string(
        "",
        check=_authorizer,
        allowed=f"{STANDARD_AUTHORIZER}, or empty",
        doc=f"Authorizer: `{STANDARD_AUTHORIZER}` for ACLs (docs/security.md). Empty: every client may do everything.",
    )
    super_users = string(
        "",
        check=_principals,
        allowed="principals, separated by semicolons",
        doc="Principals that may do everything, regardless of ACLs, separated by semicolons: `User:admin;User:bob`.",
    )
    allow_everyone_if_no_acl_found = boolean(
        False, doc="Whether every client may do everything with a resource to which no ACL applies."
    )
    quota_window_num = int32(11, at_least=1, doc="Number of samples in quotas on bytes, time and connections.")
    quota_window_size_seconds = int32(1, at_least=1, doc="Length of such a sample.")
    controller_quota_window_num = int32(11, at_least=1, doc="Number of samples in quotas on changes of partitions.")
    controller_quota_window_size_seconds = int32(1, at_least=1, doc="Length of such a sample.")
    ottla_audit_log = string(
        "",
        check=_audit_log,
        allowed="a path, topic:NAME, or empty",
        doc="Where the audit log goes, one line of JSON for each event: a file, or a topic. Empty: nowhere.",
    )
    ottla_audit_allowed = boolean(
        False,
        dynamic=True,
        doc="Whether the audit log also contains what was allowed, and not only what was denied, changed or throttled, "
        "and each authentication.",
    )
    ottla_audit_max_per_second = int32(
        1000,
        at_least=1,
        dynamic=True,
        doc="Most events that the audit log records in a second, at most a quarter of them from one address. Further "
        "events are counted and left out.",
    )
    metric_reporters = words(
        ("org.apache.kafka.common.metrics.JmxReporter",),
        inert="metrics are served for Prometheus, see `ottla.http.listener`",
        doc="Classes that report metrics.",
    )
