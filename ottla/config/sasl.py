"""Keys about authentication: SASL."""

from __future__ import annotations

from ottla.config.declare import int32, int64, password, string, words
from ottla.config.options import Options

_SASL = "SASL comes in a later version; its listeners are refused"


class Sasl(Options):
    """Authentication (SASL)."""

    sasl_enabled_mechanisms = words(("GSSAPI",), inert=_SASL, doc="Mechanisms that clients may use.")
    sasl_jaas_config = password(
        inert=_SASL,
        doc="JAAS entry; as `listener.name.NAME.MECHANISM.sasl.jaas.config` for one mechanism of one listener.",
    )
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI", inert="there is no other broker", doc="Mechanism between brokers."
    )
    sasl_mechanism_controller_protocol = string(
        "GSSAPI", inert="there is no other controller", doc="Mechanism towards controllers."
    )
    sasl_server_max_receive_size = int32(524288, inert=_SASL, doc="Longest message during authentication.")
    connections_max_reauth_ms = int64(
        0, inert=_SASL, doc="Age at which a session must authenticate again; 0 for never."
    )
