"""Keys about authentication, encryption, access and quotas.

They are read, checked and shown by DescribeConfigs (secrets never), and have no effect yet. So that nobody believes
in a protection that is not there, a listener whose protocol is not PLAINTEXT is refused at start (see `broker.py`),
and so is an authorizer.
"""

from __future__ import annotations

from ottla.config.declare import boolean, choice, int32, int64, password, string, words
from ottla.config.options import Options

_SASL = "SASL comes in a later version; its listeners are refused"
_TLS = "TLS comes in a later version; its listeners are refused"
_ACLS = "access control comes in a later version"
_QUOTAS = "quotas come in a later version"


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


class Tls(Options):
    """Encryption (TLS)."""

    ssl_keystore_type = choice("JKS", "JKS", "PKCS12", "PEM", inert=_TLS, doc="Form of the key store.")
    ssl_keystore_location = string("", empty_is_unset=True, inert=_TLS, doc="File of the key store.")
    ssl_keystore_password = password(inert=_TLS, doc="Password of the key store.")
    ssl_keystore_key = password(inert=_TLS, doc="Private key, PEM.")
    ssl_keystore_certificate_chain = password(inert=_TLS, doc="Certificate chain, PEM.")
    ssl_key_password = password(inert=_TLS, doc="Password of the private key.")
    ssl_truststore_type = choice("JKS", "JKS", "PKCS12", "PEM", inert=_TLS, doc="Form of the trust store.")
    ssl_truststore_location = string("", empty_is_unset=True, inert=_TLS, doc="File of the trust store.")
    ssl_truststore_password = password(inert=_TLS, doc="Password of the trust store.")
    ssl_truststore_certificates = password(inert=_TLS, doc="Trusted certificates, PEM.")
    ssl_client_auth = choice(
        "none", "none", "requested", "required", inert=_TLS, doc="Whether clients show a certificate."
    )
    ssl_principal_mapping_rules = string("DEFAULT", inert=_TLS, doc="How a certificate's name becomes a principal.")
    ssl_protocol = string("TLSv1.3", inert=_TLS, doc="Protocol version.")
    ssl_enabled_protocols = words(("TLSv1.2", "TLSv1.3"), inert=_TLS, doc="Protocol versions that are allowed.")
    ssl_cipher_suites = words((), inert=_TLS, doc="Cipher suites that are allowed; empty for all.")
    ssl_endpoint_identification_algorithm = string("https", inert=_TLS, doc="How host names are checked.")


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
