"""The identity and the rights of clients: authentication, TLS, access control, quotas, audit. Rules without sockets."""
