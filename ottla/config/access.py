"""Keys about access control and quotas."""

from __future__ import annotations

from ottla.config.declare import boolean, int32, string, words
from ottla.config.options import Options

_ACLS = "access control comes in a later version"
_QUOTAS = "quotas come in a later version"


class Access(Options):
    """Access control and quotas."""

    authorizer_class_name = string(
        "", inert=_ACLS, doc="Authorizer. Anything but empty is refused until access control is there."
    )
    super_users = string("", inert=_ACLS, doc="Principals that may do everything, separated by semicolons.")
    allow_everyone_if_no_acl_found = boolean(False, inert=_ACLS, doc="Whether what no ACL names is open to all.")
    quota_window_num = int32(11, at_least=1, inert=_QUOTAS, doc="Samples that quotas look at.")
    quota_window_size_seconds = int32(1, at_least=1, inert=_QUOTAS, doc="Length of a sample.")
    metric_reporters = words(
        ("org.apache.kafka.common.metrics.JmxReporter",),
        inert="metrics are served for Prometheus, see `ottla.http.listener`",
        doc="Classes that report metrics.",
    )
