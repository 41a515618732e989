"""The configuration keys, by Kafka's names: one declaration per key. Pure."""
