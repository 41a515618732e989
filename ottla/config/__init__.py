"""What can be set: one line per key, in Kafka's names. Pure."""
