"""Who clients are and what they may: authentication, TLS, access control, quotas, audit. Rules without sockets."""
