"""Keys about authentication: SASL."""

from __future__ import annotations

from ottla.config.declare import int32, int64, password, string, words
from ottla.config.options import Options


class Sasl(Options):
    """Authentication (SASL)."""

    sasl_enabled_mechanisms = words(
        ("GSSAPI",),
        doc="Mechanisms that clients may use on listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. "
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
    sasl_oauthbearer_jwks_endpoint_url = string(
        "",
        empty_is_unset=True,
        doc="The keys that sign the tokens of OAUTHBEARER: a JWKS at a file:, https: or http: URL.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = int64(3600000, at_least=1, doc="Age at which the keys are read again.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = int64(
        100, at_least=1, doc="First pause after the keys could not be read; each next one is twice as long."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = int64(
        10000,
        at_least=1,
        doc="Longest such pause; also the shortest time between two reads because a token names an unknown key.",
    )
    sasl_oauthbearer_expected_issuer = string(
        "", empty_is_unset=True, doc="Issuer that tokens must name; empty for any."
    )
    sasl_oauthbearer_expected_audience = words((), doc="Audiences of which tokens must name one; empty for any.")
    sasl_oauthbearer_clock_skew_seconds = int32(30, doc="How far a token's times may differ from the broker's clock.")
    sasl_oauthbearer_sub_claim_name = string("sub", doc="Claim of a token that names the user.")
    sasl_oauthbearer_scope_claim_name = string("scope", doc="Claim of a token that has its scopes.")
    connections_max_reauth_ms = int64(0, doc="Age at which a session must authenticate again; 0 for never.")
