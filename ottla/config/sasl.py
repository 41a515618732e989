"""Keys about authentication: SASL."""

from __future__ import annotations

from ottla.config.declare import int32, int64, password, string, words
from ottla.config.options import Options


class Sasl(Options):
    """Authentication (SASL)."""

    sasl_enabled_mechanisms = words(
        ("GSSAPI",),
        doc="Mechanisms that clients may use on listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. "
        "The default is Kafka's and is not served.",
    )
    sasl_jaas_config = password(
        doc="JAAS entry with the users of PLAIN; as "
        "`listener.name.NAME.MECHANISM.sasl.jaas.config` for one mechanism of one listener.",
    )
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI", inert="there is no other broker", doc="Mechanism between brokers."
    )
    sasl_mechanism_controller_protocol = string(
        "GSSAPI", inert="there is no other controller", doc="Mechanism towards controllers."
    )
    sasl_server_max_receive_size = int32(
        524288, at_least=1024, doc="Longest request before authentication, on listeners with SASL."
    )
    connections_max_reauth_ms = int64(0, doc="Age at which a session must authenticate again; 0 for never.")
