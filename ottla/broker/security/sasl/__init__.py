"""Authentication by SASL, as Kafka's SaslServerAuthenticator does it: mechanisms, users, sessions. Without IO."""
